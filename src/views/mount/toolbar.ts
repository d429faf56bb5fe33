import { TextSpace } from '../../charts';
import type { Control } from '../shared/control';
import { meaningOf } from '../shared/glossary';
import type { Translate } from '../shared/translate';
import { element, focusNear, writeText, watchSize } from './dom';
import { ToolbarFold, SLIDER_PLACES, sliderPlace, sliderValue } from './toolbar-fold';

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

/** Put a mark of a colour before a word; none where there is no colour. */
function swatch(node: HTMLElement, color: string | undefined): void {
  node.classList.toggle('jp-mod-colored', color !== undefined);
  node.style.setProperty('--megalens-swatch', color ?? null);
}

/** Mark a field that something was said against. */
function blame(field: HTMLElement, fault: string | undefined, title = ''): void {
  field.title = fault ?? title;
  if (fault !== undefined) {
    field.setAttribute('aria-invalid', 'true');
  }
}

const MOUNTS: { readonly [K in Control['kind']]: Mount<K> } = {
  name: () => {
    const node = element('span', { class: 'jp-MegalensToolbar-name' });
    return {
      node,
      update: ({ color, text, title }) => {
        writeText(node, text);
        node.title = title ?? text;
        swatch(node, color);
      }
    };
  },

  select: ({ label }, now) => {
    const select = element('select', { class: 'jp-MegalensSelect' });
    let [drawn, values] = ['', ''];
    select.addEventListener('change', () => now().change(select.value));
    return {
      node: labelled(label, select),
      update: control => {
        const key = JSON.stringify(control.options);
        if (key !== drawn) {
          drawn = key;
          const offered = control.options.map(({ value }) => value).join('\n');
          if (offered !== values) {
            values = offered;
            select.replaceChildren(...control.options.map(({ value }) => element('option', { value })));
          }
          // A list that is open stays as it is while what it offers is only worded anew.
          control.options.forEach(({ text, disabled, title }, at) => {
            const option = select.options[at];
            if (option) {
              writeText(option, text);
              option.disabled = disabled ?? false;
              if (option.title !== (title ?? '')) {
                option.title = title ?? '';
              }
            }
          });
        }
        if (select.value !== control.value) {
          select.value = control.value;
        }
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
    input.addEventListener('input', () => {
      input.setCustomValidity(now().why?.(input.value) ?? '');
      input.reportValidity();
    });
    input.addEventListener('change', take);
    // In a notebook's output Chromium holds its change event back until the focus goes elsewhere.
    input.addEventListener('keydown', event => {
      if (event.key === 'Enter') {
        take();
      }
    });
    let suggested = '';
    return {
      node: labelled(label, input, list),
      update: ({ fault, suggestions, title, value }) => {
        const key = suggestions.join('\n');
        if (key !== suggested) {
          suggested = key;
          list.replaceChildren(...suggestions.map(each => element('option', { value: each })));
        }
        // What someone is typing stays.
        if (focusNear(input) !== input) {
          input.value = value;
          input.setAttribute('aria-invalid', 'false');
        }
        blame(input, fault, title);
      }
    };
  },

  area: ({ label }, now) => {
    const area = element('textarea', { class: 'jp-MegalensInput jp-mod-area', rows: '2' });
    area.addEventListener('input', () => now().change(area.value));
    area.addEventListener('keydown', event => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        now().enter();
      }
    });
    const node = labelled(label, area);
    node.classList.add('jp-mod-area');
    return {
      node,
      update: ({ fault, value }) => {
        if (focusNear(area) !== area && area.value !== value) {
          area.value = value;
        }
        area.setAttribute('aria-invalid', 'false');
        blame(area, fault);
      }
    };
  },

  button: (_, now) => {
    const node = element('button', { class: 'jp-MegalensButton', type: 'button' });
    node.addEventListener('click', () => now().press());
    return {
      node,
      update: ({ isDisabled, text, title }) => {
        writeText(node, text);
        node.title = title;
        node.disabled = isDisabled ?? false;
      }
    };
  },

  status: () => {
    const node = element('span', { class: 'jp-MegalensToolbar-status', role: 'status' });
    return {
      node,
      update: ({ isFault, text }) => {
        writeText(node, text);
        node.classList.toggle('jp-mod-fault', isFault ?? false);
      }
    };
  },

  number: ({ isFraction, label }, now) => {
    const input = element('input', {
      class: 'jp-MegalensInput jp-mod-number',
      type: 'number',
      step: isFraction ? 'any' : '1'
    });
    input.addEventListener('input', () => input.reportValidity());
    input.addEventListener('change', () => {
      if (input.value !== '') {
        const { least, most, change } = now();
        const clamped = Math.min(most, Math.max(least, Number(input.value)));
        const value = isFraction ? clamped : Math.round(clamped);
        input.value = String(value);
        change(value);
      }
    });
    return {
      node: labelled(label, input),
      update: ({ fault, least, most, title, value }) => {
        input.min = String(least);
        input.max = String(most);
        input.removeAttribute('aria-invalid');
        blame(input, fault, title);
        if (focusNear(input) !== input) {
          input.value = String(value);
        }
      }
    };
  },

  slider: ({ label }, now) => {
    const slider = element('input', { class: 'jp-MegalensSlider', type: 'range', min: '0', step: '1' });
    const text = element('output', { class: 'jp-MegalensSlider-text' });
    slider.addEventListener('input', () => now().change(sliderValue(now(), Number(slider.value))));
    return {
      node: labelled(label, slider, text),
      update: control => {
        slider.max = String(control.scale === 'log' ? SLIDER_PLACES : control.most - control.least);
        slider.value = String(sliderPlace(control));
        slider.title = control.title ?? '';
        slider.setAttribute('aria-valuetext', control.text);
        writeText(text, control.text);
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
        writeText(text, control.text);
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
        writeText(text, control.text);
        node.title = control.title;
        node.setAttribute('aria-label', `${control.text}. ${control.title}`);
        swatch(node, control.color);
      }
    };
  },

  toggle: (_, now) => {
    const node = element('button', { class: 'jp-MegalensButton jp-mod-toggle', type: 'button' });
    node.addEventListener('click', () => now().change(!now().pressed));
    return {
      node,
      update: ({ text, title, pressed }) => {
        writeText(node, text);
        node.title = title;
        node.setAttribute('aria-expanded', String(pressed));
      }
    };
  }
};

/** Mount a control. One of its id stays of its kind. */
function mounted<K extends Control['kind']>(first: Of<K>, t: Translate): IMounted<K> {
  let current = first;
  const { node, update } = (MOUNTS[first.kind as K] as Mount<K>)(first, () => current);
  node.dataset['control'] = first.id;
  node.title ||= meaningOf(first.id, t);
  return {
    node,
    update: control => {
      current = control;
      update(control);
    }
  };
}

/** Kinds that say what is shown, or at which step: they stay in sight, toggles as long as there is room. */
const STAYS: ReadonlySet<Control['kind']> = new Set(['name', 'steps', 'chip', 'toggle']);

/**
 * One line of controls. Updating it keeps the elements, so that focus and half-typed text stay. With a menu
 * it is one line however narrow it is: what does not fit is folded, the last first. Without one it wraps.
 */
export class Toolbar {
  constructor(
    label: string,
    private readonly _menu: HTMLElement | null,
    private readonly _t: Translate
  ) {
    this._fold = new ToolbarFold(_t, () => this._fit());
    this.node = element(
      'div',
      {
        class: `jp-MegalensToolbar${_menu === null ? ' jp-mod-wraps' : ''}`,
        role: 'toolbar',
        'aria-label': label
      },
      ...(_menu ? [this._fold.node, _menu] : [])
    );
    this._end = _menu === null ? () => undefined : watchSize(this.node, undefined, () => this._fit());
  }

  readonly node: HTMLElement;

  update(all: readonly Control[]): void {
    // A list that offers nothing, beside that nothing is chosen, is not drawn.
    const controls = all.filter(
      each => each.kind !== 'select' || each.options.length > 1 || each.value !== ''
    );
    const gone = new Set(this._mounted.keys());
    for (const control of controls) {
      gone.delete(control.id);
      const line = this._mounted.get(control.id) ?? mounted(control, this._t);
      this._mounted.set(control.id, line);
      line.update(control);
    }
    for (const id of gone) {
      this._mounted.get(id)?.node.remove();
      this._mounted.delete(id);
      this._folded.delete(id);
    }
    this._controls = controls;
    this._place();
    const ids = controls.map(({ id }) => id).join();
    if (ids !== this._ids || !controls.every(each => this._space.holds(each.id, textsOf(each)))) {
      this._ids = ids;
      controls.forEach(each => this._space.take(each.id, textsOf(each)));
      this._fit();
    }
  }

  /** Stop watching how wide it is. Safe twice. */
  dispose(): void {
    this._end();
  }

  /** Fold as little as makes the line fit. Who uses what is unfolded is not disturbed. */
  private _fit(): void {
    if (this._menu === null || this._fold.isOpen) {
      return;
    }
    const focused = focusNear(this.node);
    this._folded.clear();
    this._place();
    this.node.classList.remove('jp-mod-tight');
    const foldable = [
      ...this._controls.filter(({ kind }) => kind === 'toggle'),
      ...this._controls.filter(({ kind }) => !STAYS.has(kind))
    ];
    while (foldable.length > 0 && this.node.scrollWidth > this.node.clientWidth) {
      this._folded.add(foldable.pop()?.id ?? '');
      this._place();
    }
    // What cannot be folded is cut short.
    this.node.classList.toggle('jp-mod-tight', this.node.scrollWidth > this.node.clientWidth);
    if (focused instanceof HTMLElement && focused !== focusNear(focused) && this.node.contains(focused)) {
      focused.focus();
    }
  }

  private _place(): void {
    const nodesOf = (folded: boolean): HTMLElement[] =>
      this._controls
        .filter(({ id }) => this._folded.has(id) === folded)
        .flatMap(({ id }) => this._mounted.get(id)?.node ?? []);
    order(this.node, nodesOf(false), this._menu && this._fold.node);
    order(this._fold.content, nodesOf(true), null);
    this._fold.count(this._folded.size);
  }

  private _controls: readonly Control[] = [];
  private _ids = '';
  private readonly _space = new TextSpace();
  private readonly _fold: ToolbarFold;
  private readonly _end: () => void;
  private readonly _folded = new Set<string>();
  private readonly _mounted = new Map<string, IMounted>();
}

/** Give a parent these children, before another one; those that stand right are not touched. */
function order(parent: HTMLElement, nodes: readonly HTMLElement[], before: Node | null): void {
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) {
      parent.insertBefore(node, parent.children[index] ?? before);
    }
  });
}

function textsOf(control: Control): readonly string[] {
  switch (control.kind) {
    case 'select':
      return control.options.map(({ text }) => text);
    case 'name':
    case 'button':
    case 'chip':
    case 'status':
    case 'toggle':
    case 'steps':
    case 'slider':
      return [control.text];
    case 'area':
    case 'text':
    case 'number':
      return [];
  }
}
