import type { Control } from '../shared/control';
import { element } from './dom';

type Of<K extends Control['kind']> = Extract<Control, { kind: K }>;

/** A control's element, and how it takes what the control is now. */
interface IMounted<K extends Control['kind'] = Control['kind']> {
  node: HTMLElement;
  update: (control: Of<K>) => void;
}

/** Makes a control's element; `now` is the control as it was last updated. */
type Mount<K extends Control['kind']> = (first: Of<K>, now: () => Of<K>) => IMounted<K>;

let unique = 0;

function labelled(label: string, ...children: (Node | string)[]): HTMLElement {
  return element('label', { class: 'jp-MegalensControl' }, element('span', {}, label), ...children);
}

const MOUNTS: { readonly [K in Control['kind']]: Mount<K> } = {
  name: () => {
    const node = element('span', { class: 'jp-MegalensToolbar-name' });
    return {
      node,
      update: ({ text, title }) => {
        node.textContent = text;
        node.title = title ?? text;
      }
    };
  },

  select: ({ label }, now) => {
    const select = element('select', { class: 'jp-MegalensSelect' });
    let drawn = '';
    select.addEventListener('change', () => now().change(select.value));
    return {
      node: labelled(label, select),
      update: control => {
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
  },

  text: ({ label }, now) => {
    const list = element('datalist', { id: `jp-megalens-list-${(unique += 1)}` });
    const input = element('input', {
      class: 'jp-MegalensInput',
      type: 'text',
      size: '6',
      list: list.id,
      spellcheck: 'false'
    });
    const take = (): void => {
      const { spaced, valid, change } = now();
      const value = spaced ? input.value.trim() : input.value.replace(/\s/g, '');
      input.setAttribute('aria-invalid', String(!valid(value)));
      if (valid(value)) {
        change(value);
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
      node: labelled(label, input, list),
      update: ({ suggestions, value }) => {
        list.replaceChildren(...suggestions.map(each => element('option', { value: each })));
        // What someone is typing stays.
        if (document.activeElement !== input) {
          input.value = value;
          input.setAttribute('aria-invalid', 'false');
        }
      }
    };
  },

  number: ({ label }, now) => {
    const input = element('input', { class: 'jp-MegalensInput jp-mod-number', type: 'number', step: '1' });
    input.addEventListener('change', () => {
      if (input.value !== '') {
        const { least, most, change } = now();
        const value = Math.round(Math.min(most, Math.max(least, Number(input.value))));
        input.value = String(value);
        change(value);
      }
    });
    return {
      node: labelled(label, input),
      update: ({ least, most, value }) => {
        input.min = String(least);
        input.max = String(most);
        if (document.activeElement !== input) {
          input.value = String(value);
        }
      }
    };
  },

  steps: ({ label }, now) => {
    const follow = element('button', { class: 'jp-MegalensButton jp-mod-follow', type: 'button' }, '▶');
    const slider = element('input', {
      class: 'jp-MegalensSlider',
      type: 'range',
      min: '0',
      step: '1',
      'aria-label': label
    });
    const text = element('output', { class: 'jp-MegalensSteps-text' });
    slider.addEventListener('input', () => now().change(Number(slider.value)));
    follow.addEventListener('click', () => now().change(now().following ? Number(slider.value) : null));
    return {
      node: element('div', { class: 'jp-MegalensControl jp-MegalensSteps' }, follow, slider, text),
      update: control => {
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
  },

  chip: (_, now) => {
    const text = element('span', {});
    const cross = element('span', { 'aria-hidden': 'true' }, '✕');
    const node = element('button', { class: 'jp-MegalensButton jp-mod-chip', type: 'button' }, text, cross);
    node.addEventListener('click', () => now().remove());
    return {
      node,
      update: control => {
        text.textContent = control.text;
        node.title = control.title;
        node.setAttribute('aria-label', `${control.text}. ${control.title}`);
      }
    };
  },

  toggle: (_, now) => {
    const node = element('button', { class: 'jp-MegalensButton jp-mod-toggle', type: 'button' });
    node.addEventListener('click', () => now().change(!now().pressed));
    return {
      node,
      update: ({ text, title, pressed }) => {
        node.textContent = text;
        node.title = title;
        node.setAttribute('aria-expanded', String(pressed));
      }
    };
  }
};

/** Mount a control. One of its id stays of its kind. */
function mounted<K extends Control['kind']>(first: Of<K>): IMounted<K> {
  let current = first;
  const { node, update } = (MOUNTS[first.kind as K] as Mount<K>)(first, () => current);
  node.dataset['control'] = first.id;
  return {
    node,
    update: control => {
      current = control;
      update(control);
    }
  };
}

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
      const line = this._mounted.get(control.id) ?? mounted(control);
      this._mounted.set(control.id, line);
      line.update(control);
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
