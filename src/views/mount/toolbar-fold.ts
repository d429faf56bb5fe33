import type { Control } from '../shared/control';
import type { Translate } from '../shared/translate';
import { element, writeText } from './dom';

/** Positions of a slider whose numbers go by ratios; the first is 0. */
export const SLIDER_PLACES = 240;

type Scale = Pick<Extract<Control, { kind: 'slider' }>, 'least' | 'most' | 'scale'>;

/** The number at a position of a slider. */
export function sliderValue({ least, most, scale }: Scale, position: number): number {
  if (scale === 'whole') {
    return least + position;
  }
  return position <= 0
    ? 0
    : Number((least * (most / least) ** ((position - 1) / (SLIDER_PLACES - 1))).toPrecision(3));
}

/** The position of a number on a slider: the nearest where it has none of its own. */
export function sliderPlace({ least, most, scale, value }: Scale & { readonly value: number }): number {
  const clamped = Math.min(most, Math.max(least, value));
  if (scale === 'whole') {
    return Math.round(clamped - least);
  }
  return value <= 0
    ? 0
    : Math.round(1 + (Math.log(clamped / least) / Math.log(most / least)) * (SLIDER_PLACES - 1));
}

let unique = 0;

/**
 * The controls of a toolbar that do not fit into its one line: a button at its end, and below it what it
 * unfolds.
 */
export class ToolbarFold {
  /** @param _closed - Called when what was unfolded is left. */
  constructor(
    private readonly _t: Translate,
    private readonly _closed: () => void
  ) {
    this.content = element('div', {
      id: `jp-megalens-fold-${(unique += 1)}`,
      class: 'jp-MegalensFold-content',
      role: 'group',
      'aria-label': _t('More settings'),
      hidden: ''
    });
    this._button = element('button', {
      class: 'jp-MegalensButton',
      type: 'button',
      'aria-expanded': 'false',
      'aria-controls': this.content.id
    });
    this.node = element('div', { class: 'jp-MegalensFold', hidden: '' }, this._button, this.content);
    this._button.addEventListener('click', () => this._open(this.content.hidden));
    this.node.addEventListener('keydown', event => {
      if (event.key === 'Escape' && this.isOpen) {
        this._open(false);
        this._button.focus();
        event.preventDefault();
        event.stopPropagation();
      }
    });
    this.node.addEventListener('focusout', event => {
      const to = event.relatedTarget;
      // A click on text, which takes no focus, or a list that the browser opens is no leaving.
      if (to instanceof Node && !this.node.contains(to)) {
        this._open(false);
      }
    });
  }

  readonly node: HTMLElement;
  readonly content: HTMLElement;

  get isOpen(): boolean {
    return !this.content.hidden;
  }

  /** Label the button with how many controls are folded; none hides it. */
  count(folded: number): void {
    this.node.hidden = folded === 0;
    if (folded === 0) {
      this._open(false);
    }
    writeText(this._button, this._t('%1 more ▾', folded));
    this._button.title = this._t('Settings for which this line has no room');
  }

  private _open(open: boolean): void {
    const closes = this.isOpen && !open;
    this.content.hidden = !open;
    this._button.setAttribute('aria-expanded', String(open));
    if (closes) {
      this._closed();
    }
    if (open) {
      // It ends where its button does, unless it would begin left of the toolbar.
      this.content.style.right = '';
      const out =
        (this.node.parentElement?.getBoundingClientRect().left ?? 0) -
        this.content.getBoundingClientRect().left;
      if (out > 0) {
        this.content.style.right = `${-out}px`;
      }
      this.content.querySelector<HTMLElement>('select, input, button')?.focus();
    }
  }

  private readonly _button: HTMLButtonElement;
}
