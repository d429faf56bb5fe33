import type { ITip } from '../shared/tip';
import { middleCut, shortNames } from '../shared/short-name';
import { element } from './dom';

/** About how wide a character is, and what stands beside the text, pixels. */
const [LETTER, MARGINS] = [6.5, 44];
/** Widest that a box is where the page has no layout, pixels. */
const MOST_PIXELS = 640;
/** Fewest and most characters of a name. */
const [LEAST_LETTERS, MOST_LETTERS] = [10, 60];

/** A small box beside the pointer that never covers what it speaks of and takes no pointer events. */
export class Tooltip {
  constructor(private readonly _stage: HTMLElement) {
    this.node = element('div', { class: 'jp-MegalensTooltip', 'aria-hidden': 'true', hidden: '' });
    _stage.append(this.node);
  }

  readonly node: HTMLElement;

  /** Show beside a point given in pixels from the stage's upper left corner. */
  show(tip: ITip, left: number, top: number): void {
    const { columns } = tip;
    const letters = lettersOf(tip, this._stage.clientWidth);
    const names = shortNames(
      tip.lines.map(line => line.name),
      letters,
      middleCut
    );
    const cells = tip.lines.flatMap((line, at) => {
      const name = element('span', { class: 'jp-MegalensTooltip-name' }, names[at] ?? '');
      if (line.color) {
        const swatch = element('span', { class: 'jp-MegalensSwatch' });
        swatch.style.background = line.color;
        name.prepend(swatch);
      }
      const beside = columns ? (line.beside ?? ['', '']) : [];
      return [name, ...[line.value, ...beside].map(text => element('span', {}, text))];
    });
    const heads = columns ? ['', '', ...columns].map(text => element('span', {}, text)) : [];
    this.node.replaceChildren(
      element('div', { class: 'jp-MegalensTooltip-heading' }, tip.heading),
      element(
        'div',
        { class: `jp-MegalensTooltip-lines${columns ? ' jp-mod-pinned' : ''}` },
        ...heads,
        ...cells
      )
    );
    this.node.style.maxWidth = `${this._stage.clientWidth || MOST_PIXELS}px`;
    this.node.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const right = left + 14 + width <= this._stage.clientWidth;
    const x = right ? left + 14 : Math.max(0, left - 14 - width);
    const y = Math.min(Math.max(0, top - height / 2), Math.max(0, this._stage.clientHeight - height));
    this.node.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }

  hide(): void {
    this.node.hidden = true;
  }
}

/** How many characters of a name fit beside the values into a box of some pixels. */
function lettersOf({ columns, lines }: ITip, width: number): number {
  const widest = (of: readonly (string | undefined)[]): number =>
    Math.max(0, ...of.map(text => text?.length ?? 0)) + 2;
  const wide = [
    lines.map(({ value }) => value),
    ...(columns ?? []).map((head, at) => [head, ...lines.map(({ beside }) => beside?.[at])])
  ].reduce((sum, column) => sum + widest(column), 0);
  const room = Math.floor(((width || MOST_PIXELS) - MARGINS) / LETTER) - wide;
  return Math.min(MOST_LETTERS, Math.max(LEAST_LETTERS, room));
}
