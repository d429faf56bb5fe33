import { formatInteger } from '../../charts';
import type { ITableField, ITable, ITableColumn } from '../shared/table';
import type { Translate } from '../shared/translate';
import { element, focusNear } from './dom';

/**
 * The element of a field in a cell; `now` gives the field as it was last updated, which a press or typing
 * goes to.
 */
function fieldOf(field: ITableField, now: () => ITableField | undefined): HTMLElement {
  const { id, label, title = '' } = field;
  const shared = { 'data-field': id, title };
  switch (field.kind) {
    case 'button': {
      const button = element('button', { ...shared, type: 'button', class: 'jp-MegalensButton' }, label);
      button.disabled = field.isDisabled;
      button.addEventListener('click', () => {
        const current = now();
        if (current?.kind === 'button') {
          current.press();
        }
      });
      return button;
    }
    case 'switch': {
      const input = element('input', { ...shared, type: 'checkbox', 'aria-label': label });
      input.checked = field.value;
      input.addEventListener('change', () => {
        const current = now();
        if (current?.kind === 'switch') {
          current.change(input.checked);
        }
      });
      return input;
    }
    case 'number': {
      const { least, most, isWhole, value } = field;
      const input = element('input', {
        ...shared,
        type: 'number',
        class: `jp-MegalensInput jp-mod-number${field.isEdited ? ' jp-mod-edited' : ''}`,
        step: isWhole ? '1' : 'any',
        ...(least === undefined ? {} : { min: String(least) }),
        ...(most === undefined ? {} : { max: String(most) }),
        value: String(value)
      });
      input.addEventListener('change', () => {
        const typed = Number(input.value);
        const current = now();
        if (
          current?.kind === 'number' &&
          input.value !== '' &&
          input.validity.valid &&
          Number.isFinite(typed)
        ) {
          input.defaultValue = input.value;
          current.change(typed);
        } else {
          input.reportValidity();
        }
      });
      return element('label', { class: 'jp-MegalensTable-field', title }, element('span', {}, label), input);
    }
  }
}

/** Whether two elements look the same, with what is typed or switched in them. */
function areAlike(one: HTMLElement, other: HTMLElement): boolean {
  const [fields, others] = [one, other].map(row => [...row.querySelectorAll('input')]);
  return (
    one.isEqualNode(other) &&
    fields!.every(
      ({ checked, value }, at) => checked === others![at]?.checked && value === others![at]?.value
    )
  );
}

/** Whether a number in a table is being typed: it is not what it was when it was drawn, or last updated. */
function isTyping(table: HTMLElement): boolean {
  const active = focusNear(table);
  return active instanceof HTMLInputElement && table.contains(active) && active.value !== active.defaultValue;
}

/** What gives the focus back to the field that has it once a table is drawn anew; null where none has. */
function heldField(table: HTMLElement): ((drawn: HTMLElement) => void) | null {
  const active = focusNear(table);
  const id = table.contains(active) && active?.getAttribute('data-field');
  return id
    ? drawn =>
        [...drawn.querySelectorAll<HTMLElement>('[data-field]')]
          .find(each => each.dataset['field'] === id)
          ?.focus()
    : null;
}

/** Rows that a page of a table shows. */
const PAGE = 100;

/** A table of many rows, a page at a time; a click on a column's name puts the rows in order. */
export class DataTable {
  constructor(private readonly _t: Translate) {
    const table = element('table', {}, this._head, this._body);
    const scroll = element('div', { class: 'jp-MegalensTable-scroll', tabindex: '0' }, table);
    this.node = element('div', { class: 'jp-MegalensTable' }, scroll, this._pager);
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
    const body = order.slice(from, from + PAGE).map(row => {
      const cells = columns.map((_, at) => cellOf(() => this._columns[at], row));
      return element('tr', { 'data-row': String(row) }, ...cells);
    });
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
          ]
        : [];
    const refocus = heldField(this.node);
    update(this._head, [element('tr', {}, ...head)]);
    update(this._body, body);
    update(this._pager, pager);
    refocus?.(this.node);
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

  private readonly _head = element('thead');
  private readonly _body = element('tbody');
  private readonly _pager = element('div', { class: 'jp-MegalensTable-pager' });
  private _columns: readonly ITableColumn[] = [];
  private _rows = 0;
  private _page = 0;
  private _isPressed = false;
  private _isBehind = false;
  private _pressing: AbortController | null = null;
  private _sort: { column: number; descends: boolean } | null = null;
}

/**
 * Give an element other children. One that stays as it is keeps its elements, so that a click, the focus or
 * selected text in it is not lost.
 */
function update(parent: HTMLElement, children: readonly HTMLElement[]): void {
  const before = [...parent.children] as HTMLElement[];
  children.forEach((child, at) => {
    const old = before[at];
    if (!old) {
      parent.append(child);
    } else if (!areAlike(old, child)) {
      old.replaceWith(child);
    }
  });
  before.slice(children.length).forEach(old => old.remove());
}

/** A cell. A press goes to the column as it was last updated. */
function cellOf(column: () => ITableColumn | undefined, row: number): HTMLElement {
  const { fields, isNumber, press, text, wraps } = column() as ITableColumn;
  const name = isNumber ? 'jp-mod-number' : wraps ? 'jp-mod-wraps' : '';
  const attributes: Record<string, string> = name ? { class: name } : {};
  if (fields) {
    return element(
      'td',
      attributes,
      ...fields(row).map((field, at) => fieldOf(field, () => column()?.fields?.(row)[at]))
    );
  }
  if (!press) {
    return element('td', attributes, text(row));
  }
  const button = element('button', { type: 'button' }, text(row));
  button.addEventListener('click', () => column()?.press?.(row));
  return element('td', attributes, button);
}
