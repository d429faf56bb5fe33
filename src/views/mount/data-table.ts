import { formatInteger } from '../../charts';
import type { ITable, ITableColumn } from '../shared/table';
import type { Translate } from '../shared/translate';
import { element } from './dom';
import { fieldOf, heldField, isTyping } from './table-field';

/** Rows that a page of a table shows. */
const PAGE = 100;

/** A table of many rows, a page at a time; a click on a column's name puts the rows in order. */
export class DataTable {
  constructor(private readonly _t: Translate) {
    this.node = element('div', { class: 'jp-MegalensTable' });
    this.node.addEventListener('pointerdown', () => {
      this._isPressed = true;
      const { signal } = (this._pressing = new AbortController());
      const release = (): void => {
        this._pressing?.abort();
        this._isPressed = false;
        // After the click that it ends.
        setTimeout(() => this._catchUp());
      };
      ['pointerup', 'pointercancel'].forEach(end => window.addEventListener(end, release, { signal }));
    });
    this.node.addEventListener('focusout', () => setTimeout(() => this._catchUp()));
  }

  readonly node: HTMLElement;

  /** Show rows. The page and the order stay. */
  show({ columns, rows }: ITable): void {
    this._columns = columns;
    this._rows = rows;
    // Nothing is drawn anew under a finger, or in the middle of a number.
    this._isBehind = this._isPressed || isTyping(this.node);
    if (!this._isBehind) {
      this._draw();
    }
  }

  private _catchUp(): void {
    if (this._isBehind && !this._isPressed) {
      this._isBehind = false;
      this._draw();
    }
  }

  private _draw(): void {
    const { _columns: columns, _t: t } = this;
    const order = this._order();
    this._page = Math.max(0, Math.min(this._page, Math.ceil(order.length / PAGE) - 1));
    const from = this._page * PAGE;
    const head = columns.map((column, at) => {
      const sorted = this._sort?.column === at ? (this._sort.descends ? 'descending' : 'ascending') : 'none';
      const button = element(
        'button',
        { type: 'button' },
        column.title,
        sorted === 'none' ? '' : this._sort?.descends ? ' ↓' : ' ↑'
      );
      button.addEventListener('click', () => this._sortBy(at));
      return element(
        'th',
        { scope: 'col', 'aria-sort': sorted, ...(column.isNumber ? { class: 'jp-mod-number' } : {}) },
        button
      );
    });
    const body = order
      .slice(from, from + PAGE)
      .map(row => element('tr', {}, ...columns.map(column => cellOf(column, row))));
    const pages = Math.ceil(order.length / PAGE);
    const turn = (by: number, label: string): HTMLElement => {
      const button = element(
        'button',
        { class: 'jp-MegalensButton', type: 'button', title: label, 'aria-label': label },
        by < 0 ? '‹' : '›'
      );
      button.disabled = this._page + by < 0 || this._page + by >= pages;
      button.addEventListener('click', () => {
        this._page += by;
        this._draw();
      });
      return button;
    };
    const pager =
      pages > 1
        ? [
            element(
              'div',
              { class: 'jp-MegalensTable-pager' },
              turn(-1, t('Rows before')),
              element(
                'span',
                {},
                t(
                  'rows %1 to %2 of %3',
                  formatInteger(from + 1),
                  formatInteger(Math.min(order.length, from + PAGE)),
                  formatInteger(order.length)
                )
              ),
              turn(1, t('Next rows'))
            )
          ]
        : [];
    const table = element(
      'table',
      {},
      element('thead', {}, element('tr', {}, ...head)),
      element('tbody', {}, ...body)
    );
    const held = heldField(this.node);
    this.node.replaceChildren(
      element('div', { class: 'jp-MegalensTable-scroll', tabindex: '0' }, table),
      ...pager
    );
    held?.(this.node);
  }

  private _sortBy(column: number): void {
    const before = this._sort;
    // First the largest, then the smallest, then as they came.
    this._sort =
      before?.column !== column
        ? { column, descends: true }
        : before.descends
          ? { column, descends: false }
          : null;
    this._draw();
  }

  private _order(): number[] {
    const rows = Array.from({ length: this._rows }, (_, row) => row);
    const sort = this._sort;
    const by = sort && this._columns[sort.column]?.sortBy;
    if (!sort || !by) {
      return rows;
    }
    const keys = rows.map(by);
    const sign = sort.descends ? -1 : 1;
    return rows.sort((a, b) => {
      const [left, right] = [keys[a] ?? 0, keys[b] ?? 0];
      const lacks = (key: number | string): boolean => typeof key === 'number' && Number.isNaN(key);
      // What is missing comes last in either order.
      return lacks(left) || lacks(right)
        ? Number(lacks(left)) - Number(lacks(right))
        : left < right
          ? -sign
          : left > right
            ? sign
            : a - b;
    });
  }

  private _columns: readonly ITableColumn[] = [];
  private _rows = 0;
  private _page = 0;
  private _isPressed = false;
  private _isBehind = false;
  private _pressing: AbortController | null = null;
  private _sort: { column: number; descends: boolean } | null = null;
}

function cellOf({ fields, isNumber, press, text, wraps }: ITableColumn, row: number): HTMLElement {
  const name = isNumber ? 'jp-mod-number' : wraps ? 'jp-mod-wraps' : '';
  const attributes: Record<string, string> = name ? { class: name } : {};
  if (fields) {
    return element('td', attributes, ...fields(row).map(fieldOf));
  }
  if (!press) {
    return element('td', attributes, text(row));
  }
  const button = element('button', { type: 'button' }, text(row));
  button.addEventListener('click', () => press(row));
  return element('td', attributes, button);
}
