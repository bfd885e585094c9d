// xterm.js styles itself in two ways that a strict Content-Security-Policy refuses: by <style> elements that it fills at run time, and by
// the style attribute of cells with a colour of their own. The policy allows both through the object model, so this module leads them there.

/** To be called once, before the first Terminal is made. */
export function allowXtermStyles(): void {
  const createElement = document.createElement.bind(document);
  document.createElement = ((name: string, options?: ElementCreationOptions): HTMLElement =>
    name === "style" ? styleElement(createElement("template")) : createElement(name, options)) as typeof document.createElement;

  HTMLSpanElement.prototype.setAttribute = function (this: HTMLSpanElement, name: string, value: string): void {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };
}

/** Makes of `inert` what xterm.js needs of a <style>: its text is a constructed style sheet of the document, until it is removed. */
function styleElement(inert: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(inert, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  inert.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    HTMLElement.prototype.remove.call(inert);
  };
  return inert;
}
