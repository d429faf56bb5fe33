import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import { mountView } from '../registry';
import type { IView, IViewHost } from '../view';

/** The views that are on the page, in the order in which they came. */
export const shown: IView[] = [];

/** Take all that is shown off the page. */
export function clearPage(): void {
  shown.splice(0).forEach(view => view.dispose());
  document.body.replaceChildren();
}

afterEach(clearPage);

/** Show a view on the page, below those that are there; it is taken off after the test. */
export async function showView(run: IRunSource, options: ViewOptions, host: IViewHost = {}): Promise<IView> {
  const node = document.createElement('div');
  document.body.append(node);
  const view = await mountView(node, run, options, { renderer: 'svg', ...host });
  shown.push(view);
  await view.settled();
  return view;
}

/** Resolves when all that was asked for is drawn, also what begins with a later turn. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) {
    await Promise.all(shown.map(view => view.settled()));
    await new Promise<void>(done => setTimeout(done));
  }
  await Promise.all(shown.map(view => view.settled()));
}

/** A text without thin spaces and true minuses. */
export const plain = (text: string | null | undefined): string =>
  (text ?? '').replace(/[\u00a0\u2009\u202f]/g, ' ').replace(/\u2212/g, '-');

export const texts = (selector: string, within: ParentNode = document): string[] =>
  [...within.querySelectorAll(selector)].map(each => plain(each.textContent));
export const text = (selector: string, within: ParentNode = document): string =>
  plain(within.querySelector(selector)?.textContent);
export const title = (within?: ParentNode): string => text('.jp-MegalensView-title', within);
export const caption = (within?: ParentNode): string => text('.jp-MegalensView-caption', within);
/** Why there is no picture. */
export const state = (): string => text('.jp-MegalensState p');
/** What a screen reader is told. */
export const said = (at = 0): string => texts('.jp-MegalensView > [aria-live]')[at] ?? '';

/** The cells of a table's body. */
export const tableRows = (at = 0): string[][] =>
  [...(document.querySelectorAll('.jp-MegalensTable tbody')[at]?.querySelectorAll('tr') ?? [])].map(row =>
    texts('td', row)
  );

/** Press a key in a picture, and return what is said then. */
export function key(name: string, init: KeyboardEventInit = {}, at = 0): string {
  const stage = document.querySelectorAll('.jp-MegalensStage')[at];
  stage?.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, ...init }));
  return said(at);
}

/** Press keys in the first picture, and see what each does. */
export async function press(...keys: string[]): Promise<void> {
  for (const each of keys) {
    key(each);
    await settled();
  }
}

export const button = (label: string): HTMLButtonElement | undefined =>
  [...document.querySelectorAll('button')].find(each => each.textContent === label);

export async function click(label: string): Promise<void> {
  button(label)?.click();
  await settled();
}

/** A control of a toolbar, or what of it can be filled in. */
export function control<T extends HTMLElement = HTMLElement>(id: string, part = ''): T {
  const found = document.querySelector<T>(`[data-control="${id}"] ${part}`);
  if (!found) {
    throw new Error(`Expected a control ${id}, found none.`);
  }
  return found;
}

/** Give what is shown other options. */
export async function update(options: object): Promise<void> {
  await Promise.all(shown.map(view => view.update(options)));
  await settled();
}

/** Fill something in, or choose it. */
export async function put(id: string, value: string): Promise<void> {
  const field = control(id).querySelector<HTMLInputElement>('input, select, textarea')!;
  field.value = value;
  field.dispatchEvent(new Event(['range', 'textarea'].includes(field.type) ? 'input' : 'change'));
  await settled();
}
