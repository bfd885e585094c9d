/** The element of page.html with this id, which is of this type. */
export function element<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`page.html has no such ${type.name}: ${id}`);
  return found;
}
