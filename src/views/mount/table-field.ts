import type { ITableField } from '../shared/table';
import { element } from './dom';

/** The element of a field in a cell; `now` gives the field as it was told last, which what is pressed or typed goes to. */
export function fieldOf(field: ITableField, now: () => ITableField | undefined): HTMLElement {
  const { id, label, title = '' } = field;
  const shared = { 'data-field': id, title };
  switch (field.kind) {
    case 'button': {
      const button = element('button', { ...shared, type: 'button', class: 'jp-MegalensButton' }, label);
      button.disabled = field.isDisabled;
      button.addEventListener('click', () => {
        const told = now();
        if (told?.kind === 'button') {
          told.press();
        }
      });
      return button;
    }
    case 'switch': {
      const input = element('input', { ...shared, type: 'checkbox', 'aria-label': label });
      input.checked = field.value;
      input.addEventListener('change', () => {
        const told = now();
        if (told?.kind === 'switch') {
          told.change(input.checked);
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
        const told = now();
        if (told?.kind === 'number' && input.value !== '' && input.validity.valid && Number.isFinite(typed)) {
          input.defaultValue = input.value;
          told.change(typed);
        } else {
          input.reportValidity();
        }
      });
      return element('label', { class: 'jp-MegalensTable-field', title }, element('span', {}, label), input);
    }
  }
}

/** Whether two elements look the same, with what is typed or switched in them. */
export function areAlike(one: HTMLElement, other: HTMLElement): boolean {
  const [fields, others] = [one, other].map(row => [...row.querySelectorAll('input')]);
  return (
    one.isEqualNode(other) &&
    fields!.every(
      ({ checked, value }, at) => checked === others![at]?.checked && value === others![at]?.value
    )
  );
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
