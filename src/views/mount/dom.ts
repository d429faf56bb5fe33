/** Make an element with attributes and children; `class` takes the CSS class, text children become text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Give an element another text. One that it has already is left: written again, the browser would lay it out again. */
export function writeText(node: HTMLElement, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

/** Put text on the clipboard. */
export async function copyText(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
}

/** Let the browser save a text as a file. */
export function saveText(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  saveFile(name, url);
  URL.revokeObjectURL(url);
}

/** Let the browser save a file. */
export function saveFile(name: string, url: string): void {
  const link = element('a', { href: url, download: name });
  link.click();
}
