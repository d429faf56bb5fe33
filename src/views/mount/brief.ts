import type { IBrief, IBriefBar, IBriefFact, IBriefLine } from '../shared/content';
import { element, focusNear } from './dom';

/** Sentences, bars and numbers of a content. What stays as it is keeps its elements, and so its focus. */
export class Brief {
  readonly node = element('div', { class: 'jp-MegalensBrief', hidden: '' });

  show(brief: IBrief | null): void {
    this.node.hidden = brief === null;
    this._brief = brief;
    const key = JSON.stringify(brief, (name, value: unknown) => (name === 'run' ? typeof value : value));
    if (key === this._key) {
      return;
    }
    this._key = key;
    const { lines = [], bars = [], facts = [], quote } = brief ?? {};
    const focused = [...this.node.querySelectorAll('button')].findIndex(
      each => each === focusNear(this.node)
    );
    this.node.replaceChildren(
      ...bars.flatMap(barNodes),
      ...(lines.length > 0 ? [element('ul', {}, ...lines.map((line, at) => this._line(line, at)))] : []),
      ...(facts.length > 0 ? [element('dl', {}, ...facts.map(factNode))] : []),
      ...(quote ? [element('blockquote', {}, element('span', {}, quote.given), quote.text)] : [])
    );
    this.node.querySelectorAll('button')[focused]?.focus();
  }

  private _line({ text, lead, tone, run, action }: IBriefLine, at: number): HTMLElement {
    const words = run ? element('button', { type: 'button' }, text) : element('span', {}, text);
    // What a press does may be another thing by then than when it was drawn.
    words.addEventListener('click', () => this._brief?.lines?.[at]?.run?.());
    const item = element(
      'li',
      tone ? { class: `jp-mod-${tone}` } : {},
      ...(lead === undefined ? [] : [element('span', { class: 'jp-MegalensBrief-lead' }, lead)]),
      words
    );
    if (action) {
      const button = element('button', { class: 'jp-MegalensButton', type: 'button' }, action.label);
      button.addEventListener('click', () => void this._act(button, at));
      item.append(button);
    }
    return item;
  }

  private async _act(button: HTMLButtonElement, at: number): Promise<void> {
    button.disabled = true;
    try {
      await this._brief?.lines?.[at]?.action?.run();
    } catch (reason) {
      const sentence = reason instanceof Error ? reason.message : String(reason);
      button.after(element('span', { role: 'alert' }, sentence));
    } finally {
      button.disabled = false;
    }
  }

  private _brief: IBrief | null = null;
  private _key = 'null';
}

/** A bar as one picture with its words, and the key below it. */
function barNodes({ name, pieces, isKeyed }: IBriefBar): HTMLElement[] {
  const words = pieces.map(each => `${each.name} ${each.value}`).join(', ');
  const title = element('p', { class: 'jp-MegalensBrief-title' }, name);
  const bar = element('div', {
    class: 'jp-MegalensBrief-bar',
    role: 'img',
    'aria-label': `${name}: ${words}`
  });
  for (const { name: piece, value, size, color } of pieces) {
    const node = element('span', { title: `${piece}: ${value}` });
    node.style.flexGrow = String(Math.max(0, size));
    node.style.background = color;
    bar.append(node);
  }
  const key = pieces.map(({ name: piece, value, color }) => {
    const swatch = element('span', { class: 'jp-MegalensSwatch', 'aria-hidden': 'true' });
    swatch.style.background = color;
    return element('li', {}, swatch, `${piece} ${value}`);
  });
  return [title, bar, ...(isKeyed ? [element('ul', { class: 'jp-MegalensBrief-key' }, ...key)] : [])];
}

function factNode({ name, value, title, warns }: IBriefFact): HTMLElement {
  return element(
    'div',
    { ...(title === undefined ? {} : { title }), ...(warns ? { class: 'jp-mod-warning' } : {}) },
    element('dt', {}, name),
    element('dd', {}, value)
  );
}
