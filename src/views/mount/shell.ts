import type { IContent, INote } from '../shared/content';
import type { ITable } from '../shared/table';
import type { Translate } from '../shared/translate';
import { DataTable } from './data-table';
import { element, writeText } from './dom';
import { Legend } from './legend';

/** The elements of a view, top to bottom: toolbar, banner, title, stage, state, caption. */
export class Shell {
  constructor(toolbar: HTMLElement, t: Translate) {
    this._table = new DataTable(t);
    this._legend = new Legend(t);
    this._insight.addEventListener('click', () => this.onInsight());
    this._stage = element(
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
      this._stage,
      this._body,
      this.state,
      this._caption,
      this._live
    );
  }

  readonly root: HTMLElement;
  /** The stage has its words: to a screen reader the chart is hundreds of marks without an order. */
  readonly plot = element('div', { class: 'jp-MegalensPlot', 'aria-hidden': 'true' });
  /** What the run's other views point at, and the chosen steps. */
  readonly linked = element('div', { class: 'jp-MegalensOverlay', 'aria-hidden': 'true' });
  readonly overlay = element('div', { class: 'jp-MegalensOverlay', 'aria-hidden': 'true' });
  readonly banner = element('div', { class: 'jp-MegalensBanner', hidden: '' });
  readonly state = element('div', { class: 'jp-MegalensState', hidden: '' });

  /** Holds plot, cursor and tooltip; takes the focus and the keys. */
  get stage(): HTMLElement {
    return this._stage;
  }

  /** Calls back when the sentence above the picture is pressed. */
  onInsight: () => void = () => undefined;

  /**
   * Write title, summary and caption of a picture; null where there is none.
   *
   * @param goes Whether the summary points at a place of the picture.
   */
  present(content: IContent | null, goes = false): void {
    this.root.dataset['state'] = content === null ? 'none' : 'drawn';
    this._writeNotes(content?.notes ?? []);
    this._writeBody(content?.body ?? null);
    this._legend.show(content?.legend ?? null);
    this._insight.hidden = !content?.summary;
    if (content === null) {
      return;
    }
    this._stage.hidden = content.recipe === null;
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
    this._stage.setAttribute('aria-label', `${content.title}. ${content.summary}`);
  }

  /** Have a screen reader say something. */
  say(text: string): void {
    this._live.textContent = text;
  }

  /** A table keeps its page and order while there is one. */
  private _writeBody(body: ITable | null): void {
    if (body) {
      this._table.show(body);
    }
    if (!body || this._table.node.parentNode !== this._body) {
      this._body.replaceChildren(...(body ? [this._table.node] : []));
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
  private readonly _body = element('div', { class: 'jp-MegalensBody' });
  private readonly _title = element('h2', { class: 'jp-MegalensView-title' });
  private readonly _insight = element('button', {
    class: 'jp-MegalensView-insight',
    type: 'button',
    hidden: ''
  });
  private readonly _caption = element('p', { class: 'jp-MegalensView-caption' });
  private readonly _live = element('div', { class: 'jp-MegalensHidden', 'aria-live': 'polite' });
  private readonly _stage: HTMLElement;
  private readonly _table: DataTable;
  private readonly _legend: Legend;
}

function noteLine({ text, tone, action }: INote): HTMLElement {
  const button = element('button', { class: 'jp-MegalensButton', type: 'button' }, action.label);
  button.disabled = action.isDisabled === true;
  button.addEventListener('click', () => action.run());
  return element(
    'p',
    { class: `jp-MegalensNote jp-mod-${tone ?? 'plain'}` },
    element('span', {}, text),
    button
  );
}
