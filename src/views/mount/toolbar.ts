import type { Control } from '../shared/control';
import { element } from './dom';

interface IMounted {
  node: HTMLElement;
  update: (control: Control) => void;
}

let unique = 0;

function labelled(label: string, ...children: (Node | string)[]): HTMLElement {
  return element('label', { class: 'jp-MegalensControl' }, element('span', {}, label), ...children);
}

function mountName(): IMounted {
  const node = element('span', { class: 'jp-MegalensToolbar-name' });
  return {
    node,
    update: control => {
      if (control.kind === 'name') {
        node.textContent = control.text;
        node.title = control.title ?? control.text;
      }
    }
  };
}

function mountSelect(first: Control): IMounted {
  const select = element('select', { class: 'jp-MegalensSelect' });
  const node = labelled(first.kind === 'select' ? first.label : '', select);
  let current = first;
  let drawn = '';
  select.addEventListener('change', () => current.kind === 'select' && current.change(select.value));
  return {
    node,
    update: control => {
      current = control;
      if (control.kind !== 'select') {
        return;
      }
      const key = JSON.stringify(control.options);
      if (key !== drawn) {
        drawn = key;
        select.replaceChildren(
          ...control.options.map(({ value, text, disabled, title }) => {
            const option = element('option', { value, ...(title ? { title } : {}) }, text);
            option.disabled = disabled ?? false;
            return option;
          })
        );
      }
      select.value = control.value;
    }
  };
}

function mountText(first: Control): IMounted {
  const list = element('datalist', { id: `jp-megalens-list-${(unique += 1)}` });
  const input = element('input', {
    class: 'jp-MegalensInput',
    type: 'text',
    size: '6',
    list: list.id,
    spellcheck: 'false'
  });
  const node = labelled(first.kind === 'text' ? first.label : '', input, list);
  let current = first;
  const take = (): void => {
    const spaced = current.kind === 'text' && current.spaced === true;
    const value = spaced ? input.value.trim() : input.value.replace(/\s/g, '');
    const valid = current.kind === 'text' && current.valid(value);
    input.setAttribute('aria-invalid', String(!valid));
    if (valid && current.kind === 'text') {
      current.change(value);
    }
  };
  input.addEventListener('change', take);
  // In a notebook's output Chromium holds its change event back until the focus goes elsewhere.
  input.addEventListener('keydown', event => {
    if (event.key === 'Enter') {
      take();
    }
  });
  return {
    node,
    update: control => {
      current = control;
      if (control.kind !== 'text') {
        return;
      }
      list.replaceChildren(...control.suggestions.map(value => element('option', { value })));
      // What someone is typing stays.
      if (document.activeElement !== input) {
        input.value = control.value;
        input.setAttribute('aria-invalid', 'false');
      }
    }
  };
}

function mountNumber(first: Control): IMounted {
  const input = element('input', { class: 'jp-MegalensInput jp-mod-number', type: 'number', step: '1' });
  const node = labelled(first.kind === 'number' ? first.label : '', input);
  let current = first;
  input.addEventListener('change', () => {
    if (current.kind === 'number' && input.value !== '') {
      const value = Math.round(Math.min(current.most, Math.max(current.least, Number(input.value))));
      input.value = String(value);
      current.change(value);
    }
  });
  return {
    node,
    update: control => {
      current = control;
      if (control.kind === 'number') {
        input.min = String(control.least);
        input.max = String(control.most);
        if (document.activeElement !== input) {
          input.value = String(control.value);
        }
      }
    }
  };
}

function mountSteps(first: Control): IMounted {
  const label = first.kind === 'steps' ? first.label : '';
  const follow = element('button', { class: 'jp-MegalensButton jp-mod-follow', type: 'button' }, '▶');
  const slider = element('input', {
    class: 'jp-MegalensSlider',
    type: 'range',
    min: '0',
    step: '1',
    'aria-label': label
  });
  const text = element('output', { class: 'jp-MegalensSteps-text' });
  const node = element('div', { class: 'jp-MegalensControl jp-MegalensSteps' }, follow, slider, text);
  let current = first;
  const choose = (index: number | null): void => {
    if (current.kind === 'steps') {
      current.change(index);
    }
  };
  slider.addEventListener('input', () => choose(Number(slider.value)));
  follow.addEventListener('click', () =>
    choose(current.kind === 'steps' && current.following ? Number(slider.value) : null)
  );
  return {
    node,
    update: control => {
      current = control;
      if (control.kind !== 'steps') {
        return;
      }
      slider.max = String(Math.max(0, control.count - 1));
      slider.value = String(control.index);
      slider.disabled = control.count < 2;
      slider.setAttribute('aria-valuetext', control.text);
      text.textContent = control.text;
      follow.hidden = !control.canFollow;
      follow.title = control.followLabel;
      follow.setAttribute('aria-label', control.followLabel);
      follow.setAttribute('aria-pressed', String(control.following));
    }
  };
}

function mountChip(first: Control): IMounted {
  const text = element('span', {});
  const node = element(
    'button',
    { class: 'jp-MegalensButton jp-mod-chip', type: 'button' },
    text,
    element('span', { 'aria-hidden': 'true' }, '✕')
  );
  let current = first;
  node.addEventListener('click', () => current.kind === 'chip' && current.remove());
  return {
    node,
    update: control => {
      current = control;
      if (control.kind === 'chip') {
        text.textContent = control.text;
        node.title = control.title;
        node.setAttribute('aria-label', `${control.text}. ${control.title}`);
      }
    }
  };
}

function mountToggle(first: Control): IMounted {
  const node = element('button', { class: 'jp-MegalensButton jp-mod-toggle', type: 'button' });
  let current = first;
  node.addEventListener('click', () => current.kind === 'toggle' && current.change(!current.pressed));
  return {
    node,
    update: control => {
      current = control;
      if (control.kind === 'toggle') {
        node.textContent = control.text;
        node.title = control.title;
        node.setAttribute('aria-expanded', String(control.pressed));
      }
    }
  };
}

const MOUNTS = {
  name: mountName,
  select: mountSelect,
  text: mountText,
  number: mountNumber,
  steps: mountSteps,
  chip: mountChip,
  toggle: mountToggle
};

/** One line of controls. Updating it keeps the elements, so that focus and half-typed text stay. */
export class Toolbar {
  constructor(label: string, menu: HTMLElement | null) {
    this._menu = menu;
    this.node = element(
      'div',
      { class: 'jp-MegalensToolbar', role: 'toolbar', 'aria-label': label },
      ...(menu ? [menu] : [])
    );
  }

  readonly node: HTMLElement;

  update(controls: readonly Control[]): void {
    const gone = new Set(this._mounted.keys());
    for (const control of controls) {
      gone.delete(control.id);
      let mounted = this._mounted.get(control.id);
      if (mounted === undefined) {
        mounted = MOUNTS[control.kind](control);
        mounted.node.dataset['control'] = control.id;
        this._mounted.set(control.id, mounted);
      }
      mounted.update(control);
    }
    for (const id of gone) {
      this._mounted.get(id)?.node.remove();
      this._mounted.delete(id);
    }
    const nodes = controls.flatMap(control => this._mounted.get(control.id)?.node ?? []);
    nodes.forEach((node, place) => {
      if (this.node.children[place] !== node) {
        this.node.insertBefore(node, this.node.children[place] ?? this._menu);
      }
    });
  }

  private readonly _menu: HTMLElement | null;
  private readonly _mounted = new Map<string, IMounted>();
}
