// Files into the sandbox's workdir, one after the other, with progress.

import { element } from "./dom";

interface Entry {
  file: File;
  row: HTMLLIElement;
  bar: HTMLProgressElement;
  said: HTMLSpanElement;
  button: HTMLButtonElement;
  request: XMLHttpRequest | null;
}

export class Uploads {
  private readonly panel = element("uploads", HTMLElement);
  private readonly list = element("upload-list", HTMLUListElement);
  private readonly announced = element("upload-said", HTMLElement);
  private readonly waiting: Entry[] = [];
  private running: Entry | null = null;

  /**
   * `path` is where files may be posted: null when the terminal is not open, undefined when it is, but the server has not told yet; then
   * `go` is to be called later. `done` is called when the panel closes.
   */
  constructor(
    private readonly path: () => string | null | undefined,
    done: () => void,
  ) {
    element("upload-close", HTMLButtonElement).addEventListener("click", () => {
      for (const entry of [...this.waiting, ...(this.running ? [this.running] : [])]) this.cancel(entry);
      this.list.replaceChildren();
      this.panel.hidden = true;
      done();
    });
  }

  add(files: Iterable<File>): void {
    for (const file of files) this.waiting.push(this.show(file));
    if (this.waiting.length > 0) this.panel.hidden = false;
    this.go();
  }

  /** For what is not a file, such as a dropped folder. */
  refuse(name: string, why: string): void {
    const entry = this.show({ name, size: 0 } as File);
    this.panel.hidden = false;
    this.finish(entry, why, true);
  }

  private show(file: File): Entry {
    const row = document.createElement("li");
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = file.name;
    const bar = document.createElement("progress");
    bar.max = 1;
    bar.value = 0;
    bar.setAttribute("aria-label", `Upload of ${file.name}`);
    const said = document.createElement("span");
    said.className = "said";
    said.textContent = "waiting";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Cancel";
    button.setAttribute("aria-label", `Cancel the upload of ${file.name}`);
    row.append(name, bar, said, button);
    this.list.append(row);
    const entry: Entry = { file, row, bar, said, button, request: null };
    button.addEventListener("click", () => this.cancel(entry));
    return entry;
  }

  /** Send what waits. */
  go(): void {
    const path = this.path();
    if (this.running || path === undefined) return;
    const entry = this.waiting.shift();
    if (!entry) return;
    if (path === null) {
      this.finish(entry, "failed: the terminal is not open", true);
      this.go();
      return;
    }
    this.running = entry;
    const request = (entry.request = new XMLHttpRequest());
    const over = (said: string, failed: boolean): void => {
      this.running = null;
      this.finish(entry, said, failed);
      this.go();
    };
    request.upload.addEventListener("progress", ({ loaded, total }) => {
      entry.bar.value = total ? loaded / total : 0;
      entry.said.textContent = `${size(loaded)} of ${size(entry.file.size)}`;
    });
    request.addEventListener("load", () => {
      const ok = request.status >= 200 && request.status < 300;
      over(ok ? `${size(entry.file.size)}, done` : `failed: ${problem(request)}`, !ok);
    });
    request.addEventListener("error", () => over("failed: the connection was lost", true));
    request.addEventListener("abort", () => over("cancelled", true));
    request.open("POST", `${path}&path=${encodeURIComponent(entry.file.name)}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.send(entry.file);
  }

  private cancel(entry: Entry): void {
    if (entry.request) entry.request.abort();
    else {
      this.waiting.splice(this.waiting.indexOf(entry), 1);
      this.finish(entry, "cancelled", true);
    }
  }

  private finish(entry: Entry, said: string, failed: boolean): void {
    const hadFocus = document.activeElement === entry.button;
    entry.button.remove();
    entry.bar.remove();
    entry.said.textContent = said;
    entry.row.classList.add(failed ? "failed" : "done");
    this.announced.textContent = `${entry.file.name}: ${said}`;
    if (hadFocus) element("upload-close", HTMLButtonElement).focus();
  }
}

function problem(request: XMLHttpRequest): string {
  try {
    const { detail } = JSON.parse(request.responseText) as { detail?: unknown };
    if (typeof detail === "string") return detail;
  } catch {
    // Not one of the server's own answers: a proxy's page, say.
  }
  return `the server answered ${request.status}`;
}

export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = bytes / 1000;
  let unit = 0;
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1000;
  return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Lets files be dropped on the page, and chosen with the button. */
export function takeFiles(uploads: Uploads): void {
  const veil = element("drop", HTMLElement);
  const picker = element("picker", HTMLInputElement);
  const carriesFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;

  element("upload", HTMLButtonElement).addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => {
    uploads.add(picker.files ?? []);
    picker.value = "";
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    veil.hidden = !carriesFiles(event);
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) veil.hidden = true;
  });
  document.addEventListener("drop", (event) => {
    veil.hidden = true;
    if (!carriesFiles(event)) return;
    event.preventDefault();
    for (const item of event.dataTransfer?.items ?? []) {
      if (item.webkitGetAsEntry()?.isDirectory) uploads.refuse(item.getAsFile()?.name ?? "folder", "failed: a folder can't be uploaded");
      else {
        const file = item.getAsFile();
        if (file) uploads.add([file]);
      }
    }
  });
}
