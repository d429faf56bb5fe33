import { own } from '../../protocol/records';
import { Minimap } from './minimap';
import type { IContent, INote } from '../shared/content';
import { onlyShown, toggled, type ILegend, type ILegendEntry } from '../kits/lines/legend';
import { shortName, shortNames } from '../shared/short-name';
import type { ITable } from '../shared/table';
import type { Translate } from '../shared/translate';
import { Brief } from './brief';
import { DataTable } from './data-table';
import { element, focusNear, writeText } from './dom';

/** Most characters of an entry; the whole name is its title. */
const MOST_LETTERS = 40;
/** More entries than these are a scale of colours: each is named where the pointer is, its ends always. */
const MOST_NAMED = 24;

/**
 * The names of a picture's lines as buttons: pressed once a line is hidden or shown, pressed twice or with
 * Alt it is shown alone. One of them is a stop of the Tab key; arrows go to the others.
 */
class Legend {
  constructor(private readonly _t: Translate) {
    this._all = element('button', {
      class: 'jp-MegalensLegend-all',
      type: 'button',
      tabindex: '-1',
      hidden: ''
    });
    this._all.addEventListener('click', () => {
      this._legend?.hide([]);
      this._buttons.values().next().value?.focus();
    });
    this.node = element('div', { class: 'jp-MegalensLegend', role: 'group', hidden: '' });
    this.node.addEventListener('keydown', event => this._onKey(event));
  }

  readonly node: HTMLElement;

  /**
   * Write the names of lines; null where there are none. Buttons of lines that stay are kept, with their
   * focus.
   */
  show(legend: ILegend | null): void {
    this.node.hidden = legend === null;
    const key = JSON.stringify(legend);
    this._legend = legend;
    if (legend === null || key === this._key) {
      return;
    }
    this._key = key;
    this.node.setAttribute('aria-label', legend.title);
    const before = new Map(this._buttons);
    this._buttons.clear();
    const names = shortNames(
      legend.entries.map(({ name }) => name),
      MOST_LETTERS,
      shortName
    );
    this.node.classList.toggle('jp-mod-scale', names.length > MOST_NAMED);
    this.node.dataset['first'] = names[0] ?? '';
    this.node.dataset['last'] = names.at(-1) ?? '';
    for (const [at, entry] of legend.entries.entries()) {
      const button = before.get(entry.id) ?? this._buttonOf(entry.id);
      this._buttons.set(entry.id, button);
      write(button, entry, names[at] ?? '', this._t);
      button.disabled = legend.entries.length < 2;
    }
    const hidden = legend.entries.filter(each => each.isHidden);
    this._all.hidden = hidden.length === 0;
    this._all.textContent = this._t('%1 hidden: show all', hidden.length);
    this._all.title = hidden.map(each => each.name).join(', ');
    const nodes = [...this._buttons.values(), this._all];
    if (
      nodes.some((node, at) => this.node.children[at] !== node) ||
      this.node.children.length > nodes.length
    ) {
      const focused = nodes.find(node => node === focusNear(this.node));
      this.node.replaceChildren(...nodes);
      focused?.focus();
    }
    this._stop(nodes.find(node => node.tabIndex === 0 && !node.hidden) ?? nodes[0]);
  }

  private _buttonOf(id: string): HTMLButtonElement {
    const button = element('button', { class: 'jp-MegalensLegend-entry', type: 'button', tabindex: '-1' });
    button.addEventListener('click', event => {
      const legend = this._legend;
      if (legend === null) {
        return;
      }
      if (event.detail < 2) {
        this._before = legend;
      }
      // The second press of two means the legend as it was before the first.
      legend.hide(
        event.altKey || event.detail === 2
          ? onlyShown(event.detail === 2 ? (this._before ?? legend) : legend, id)
          : toggled(legend, id)
      );
    });
    return button;
  }

  private _onKey(event: KeyboardEvent): void {
    const nodes = [...this._buttons.values(), ...(this._all.hidden ? [] : [this._all])];
    const at = nodes.indexOf(event.target as HTMLButtonElement);
    const [id] = [...this._buttons].find(([, button]) => button === event.target) ?? [];
    const to = own({ ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: nodes.length - 1 }, event.key);
    if (to !== undefined) {
      const next = nodes[(to + nodes.length) % nodes.length];
      this._stop(next);
      next?.focus();
    } else if (event.altKey && id !== undefined && this._legend && ['Enter', ' '].includes(event.key)) {
      this._legend.hide(onlyShown(this._legend, id));
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private _stop(one: HTMLElement | undefined): void {
    for (const button of [...this._buttons.values(), this._all]) {
      button.tabIndex = button === one ? 0 : -1;
    }
  }

  private _legend: ILegend | null = null;
  private _before: ILegend | null = null;
  private _key = '';
  private readonly _all: HTMLButtonElement;
  private readonly _buttons = new Map<string, HTMLButtonElement>();
}

function write(
  button: HTMLElement,
  { name, color, isHidden }: ILegendEntry,
  shown: string,
  t: Translate
): void {
  const line = element('span', { class: 'jp-MegalensLegend-line', 'aria-hidden': 'true' });
  line.style.background = color;
  button.replaceChildren(line, shown);
  button.setAttribute('aria-pressed', String(!isHidden));
  button.title = t(isHidden ? '%1: show' : '%1: hide; twice, or with Alt: show only this', name);
}

let keyLines = 0;

/** The elements of a view, top to bottom: toolbar, banner, title, stage, state, caption. */
export class Shell {
  constructor(toolbar: HTMLElement, t: Translate) {
    this._table = new DataTable(t);
    this._legend = new Legend(t);
    this._insight.addEventListener('click', () => this.onInsight());
    this.stage = element(
      'div',
      { class: 'jp-MegalensStage', tabindex: '0', role: 'application', 'aria-roledescription': t('chart') },
      this.plot,
      this.linked,
      this.overlay
    );
    this.root = element(
      'section',
      { class: 'jp-MegalensView', 'data-state': 'none' },
      toolbar,
      this.banner,
      this._title,
      this._insight,
      this._notes,
      this._legend.node,
      this.minimap.node,
      this.stage,
      this.body,
      this._brief.node,
      this.state,
      this._keys,
      this._caption,
      this._live
    );
    this.stage.setAttribute('aria-describedby', this._keys.id);
  }

  readonly root: HTMLElement;
  /** The stage has its words: to a screen reader the chart is hundreds of marks without an order. */
  readonly plot = element('div', { class: 'jp-MegalensPlot', 'aria-hidden': 'true' });
  /** What the run's other views point at, and the chosen steps. */
  readonly linked = element('div', { class: 'jp-MegalensOverlay', 'aria-hidden': 'true' });
  readonly overlay = element('div', { class: 'jp-MegalensOverlay', 'aria-hidden': 'true' });
  readonly minimap = new Minimap();
  readonly body = element('div', { class: 'jp-MegalensBody' });
  readonly banner = element('div', { class: 'jp-MegalensBanner', hidden: '' });
  readonly state = element('div', { class: 'jp-MegalensState', hidden: '' });

  /** Calls back when the sentence above the picture is pressed. */
  onInsight: () => void = () => undefined;

  /**
   * Write title, summary and caption of a picture; null where there is none. `goes`: the summary points into
   * the picture.
   */
  present(content: IContent | null, goes = false): void {
    this.root.dataset['state'] = content === null ? 'none' : 'drawn';
    this._writeNotes(content?.notes ?? []);
    this._writeBody(content?.body ?? null);
    this._brief.show(content?.brief ?? null);
    this._legend.show(content?.legend ?? null);
    this.minimap.show(content?.minimap ?? null);
    this._keys.hidden = !content?.keys;
    writeText(this._keys, content?.keys ?? '');
    this._insight.hidden = !content?.summary;
    if (content === null) {
      return;
    }
    this.stage.hidden = content.recipe === null;
    this._title.textContent = content.title;
    if (content.swatch) {
      const swatch = element('span', { class: 'jp-MegalensSwatch' });
      swatch.style.background = content.swatch;
      this._title.prepend(swatch);
    }
    writeText(this._insight, content.summary);
    // One line, so that nothing below it moves while numbers change.
    this._insight.title = content.summary;
    this._insight.disabled = !goes;
    writeText(this._caption, content.caption.join(' '));
    this.stage.setAttribute('aria-label', `${content.title}. ${content.summary}`);
  }

  say(text: string): void {
    this._live.textContent = text;
  }

  /** A table keeps its page and order while there is one. */
  private _writeBody(body: ITable | null): void {
    if (body) {
      this._table.show(body);
    }
    if (!body || this._table.node.parentNode !== this.body) {
      this.body.replaceChildren(...(body ? [this._table.node] : []));
    }
  }

  private _writeNotes(notes: readonly INote[]): void {
    const key = JSON.stringify(notes);
    if (this._notes.dataset['notes'] !== key) {
      this._notes.dataset['notes'] = key;
      this._notes.hidden = notes.length === 0;
      this._notes.replaceChildren(...notes.map(noteLine));
    }
  }

  private readonly _notes = element('div', { class: 'jp-MegalensNotes', hidden: '' });
  private readonly _brief = new Brief();
  private readonly _title = element('h2', { class: 'jp-MegalensView-title' });
  private readonly _insight = element('button', {
    class: 'jp-MegalensView-insight',
    type: 'button',
    hidden: ''
  });
  private readonly _keys = element('p', {
    id: `jp-megalens-keys-${(keyLines += 1)}`,
    class: 'jp-MegalensView-keys',
    hidden: ''
  });
  private readonly _caption = element('p', { class: 'jp-MegalensView-caption' });
  private readonly _live = element('div', { class: 'jp-MegalensHidden', 'aria-live': 'polite' });
  /** Holds plot, cursor and tooltip; takes the focus and the keys. */
  readonly stage: HTMLElement;
  private readonly _table: DataTable;
  private readonly _legend: Legend;
}

function noteLine({ text, tone, action, more = [] }: INote): HTMLElement {
  const buttons = [action, ...more].map(({ label, run, isDisabled }) => {
    const button = element('button', { class: 'jp-MegalensButton', type: 'button' }, label);
    button.disabled = isDisabled === true;
    button.addEventListener('click', () => run());
    return button;
  });
  return element(
    'p',
    { class: `jp-MegalensNote jp-mod-${tone ?? 'plain'}` },
    element('span', {}, text),
    ...buttons
  );
}
