import type { ITableField } from '../shared/table';
import { element } from './dom';

/** The element of a field in a cell. */
export function fieldOf(field: ITableField): HTMLElement {
  const { id, label, title = '' } = field;
  const shared = { 'data-field': id, title };
  switch (field.kind) {
    case 'button': {
      const button = element('button', { ...shared, type: 'button', class: 'jp-MegalensButton' }, label);
      button.disabled = field.isDisabled;
      button.addEventListener('click', field.press);
      return button;
    }
    case 'switch': {
      const input = element('input', { ...shared, type: 'checkbox', 'aria-label': label });
      input.checked = field.value;
      input.addEventListener('change', () => field.change(input.checked));
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
        if (input.value !== '' && input.validity.valid && Number.isFinite(typed)) {
          input.defaultValue = input.value;
          field.change(typed);
        } else {
          input.reportValidity();
        }
      });
      return element('label', { class: 'jp-MegalensTable-field', title }, element('span', {}, label), input);
    }
  }
}

/** Whether a number in a table is being typed: it is not what it was when it was drawn, or told last. */
export function isTyping(table: HTMLElement): boolean {
  const active = document.activeElement;
  return active instanceof HTMLInputElement && table.contains(active) && active.value !== active.defaultValue;
}

/** What gives the focus back to the field that has it once a table is drawn anew; null where none has. */
export function heldField(table: HTMLElement): ((drawn: HTMLElement) => void) | null {
  const active = table.contains(document.activeElement) ? document.activeElement : null;
  const id = active?.getAttribute('data-field');
  return id
    ? drawn =>
        [...drawn.querySelectorAll<HTMLElement>('[data-field]')]
          .find(each => each.dataset['field'] === id)
          ?.focus()
    : null;
}
