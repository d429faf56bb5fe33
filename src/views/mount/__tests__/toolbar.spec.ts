import type { Control } from '../../shared/control';
import { untranslated } from '../../shared/translate';
import { Menu } from '../menu';
import { Toolbar } from '../toolbar';

let resized: () => void = () => undefined;
/** Pixels that the line has; every control takes 100, the fold's button and the menu 50 together. */
let room = 1000;

beforeEach(() => {
  room = 1000;
  globalThis.ResizeObserver = class {
    constructor(callback: () => void) {
      resized = callback;
    }
    observe(): void {}
    unobserve(): void {}
    disconnect(): void {
      resized = () => undefined;
    }
  } as unknown as typeof ResizeObserver;
});

afterEach(() => document.body.replaceChildren());

function toolbar(): Toolbar {
  const bar = new Toolbar(
    'Settings',
    new Menu(
      'More',
      () => [],
      () => undefined
    ).node,
    untranslated
  );
  Object.defineProperty(bar.node, 'clientWidth', { get: () => room });
  Object.defineProperty(bar.node, 'scrollWidth', {
    get: () => 100 * bar.node.querySelectorAll(':scope > [data-control]').length + 50
  });
  document.body.append(bar.node);
  return bar;
}

const select = (id: string): Control => ({
  kind: 'select',
  id,
  label: id,
  value: 'a',
  options: [{ value: 'a', text: 'a' }],
  change: () => undefined
});
const steps: Control = {
  kind: 'steps',
  id: 'step',
  label: 'step',
  followLabel: 'follow',
  count: 3,
  index: 1,
  text: 'step 2',
  following: false,
  canFollow: true,
  change: () => undefined
};
const CONTROLS = [select('flag'), select('layers'), steps, select('scale'), select('rank')];
const line = ({ node }: Toolbar): string[] =>
  [...node.querySelectorAll<HTMLElement>(':scope > [data-control]')].map(
    each => each.dataset['control'] ?? ''
  );
const folded = ({ node }: Toolbar): string[] =>
  [...node.querySelectorAll<HTMLElement>('.jp-MegalensFold-content > [data-control]')].map(
    each => each.dataset['control'] ?? ''
  );
const button = ({ node }: Toolbar): HTMLElement =>
  node.querySelector('.jp-MegalensFold > button') as HTMLElement;

describe('a toolbar of one line', () => {
  it('shows everything where there is room, and no button', () => {
    const bar = toolbar();
    bar.update(CONTROLS);
    expect(line(bar)).toEqual(['flag', 'layers', 'step', 'scale', 'rank']);
    expect(button(bar).parentElement?.hidden).toBe(true);
  });

  it('folds the last ones first, never the steps, in their order, and unfolds them when there is room again', () => {
    const bar = toolbar();
    bar.update(CONTROLS);
    room = 260;
    resized();
    expect(line(bar)).toEqual(['flag', 'step']);
    expect(folded(bar)).toEqual(['layers', 'scale', 'rank']);
    expect(button(bar).textContent).toBe('3 more ▾');
    room = 100;
    resized();
    expect(line(bar)).toEqual(['step']);
    room = 1000;
    resized();
    expect(folded(bar)).toEqual([]);
    expect(line(bar)).toEqual(['flag', 'layers', 'step', 'scale', 'rank']);
  });

  it('opens what is folded by its button, closes by Esc, and folds nothing anew under the hand', () => {
    room = 260;
    const bar = toolbar();
    bar.update(CONTROLS);
    button(bar).click();
    expect(button(bar).getAttribute('aria-expanded')).toBe('true');
    expect(document.activeElement?.closest('[data-control]')?.getAttribute('data-control')).toBe('layers');
    room = 1000;
    resized();
    expect(folded(bar)).toHaveLength(3);
    document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
    expect(button(bar).getAttribute('aria-expanded')).toBe('false');
    // Now there is room, and no button that could have the focus.
    expect(folded(bar)).toEqual([]);
  });

  it('keeps a folded control while it is updated, and drops one that is gone', () => {
    room = 260;
    const bar = toolbar();
    bar.update(CONTROLS);
    const rank = bar.node.querySelector('[data-control=rank]');
    bar.update(CONTROLS);
    expect(bar.node.querySelector('[data-control=rank]')).toBe(rank);
    bar.update(CONTROLS.slice(0, 3));
    expect(folded(bar)).toEqual(['layers']);
    bar.dispose();
    bar.dispose();
  });

  it('measures and makes nothing anew while only numbers change and have room', () => {
    const bar = toolbar();
    // What the line's width is read by here.
    const measured = jest.spyOn(bar.node, 'querySelectorAll');
    const lock = (text: string): Control => ({
      ...(select('range') as Extract<Control, { kind: 'select' }>),
      options: [{ value: 'a', text }]
    });
    bar.update([lock('lock \u22120.4799 to 0.3903'), steps]);
    const [option, fitted] = [bar.node.querySelector('option'), measured.mock.calls.length];
    bar.update([lock('lock \u22120.48 to 0.48'), steps]);
    expect(measured).toHaveBeenCalledTimes(fitted);
    expect(bar.node.querySelector('option')).toBe(option);
    expect(option?.textContent).toBe('lock \u22120.48 to 0.48');
    bar.update([lock('lock \u221212\u202f345.5 to 0.48'), steps]);
    expect(measured.mock.calls.length).toBeGreaterThan(fitted);
  });
});

describe('fields of a form', () => {
  it('are no lists in which there is nothing to choose', () => {
    const bar = toolbar();
    const rule = (...names: string[]) => ({
      ...(select('rule') as Extract<Control, { kind: 'select' }>),
      value: '',
      options: ['', ...names].map(value => ({ value, text: value || 'all' }))
    });
    bar.update([rule()]);
    expect(line(bar)).toEqual([]);
    bar.update([rule('jump')]);
    expect(line(bar)).toEqual(['rule']);
    bar.update([rule()]);
    expect(line(bar)).toEqual([]);
    bar.dispose();
  });

  it('say while a number is typed that it cannot be, and take the nearest one', () => {
    const bar = toolbar();
    const taken: number[] = [];
    bar.update([
      {
        ...{ kind: 'number', id: 'k', label: 'k', value: 1, least: 0, most: 20 },
        change: (value: number) => void taken.push(value)
      }
    ]);
    const input = bar.node.querySelector('input')!;
    const said = jest.fn();
    input.addEventListener('invalid', said);
    input.value = '30';
    input.dispatchEvent(new Event('input'));
    expect(said).toHaveBeenCalledTimes(1);
    input.dispatchEvent(new Event('change'));
    expect(taken).toEqual([20]);
    bar.dispose();
  });

  const form = (...controls: Control[]): Toolbar => {
    const bar = new Toolbar('Form', null, untranslated);
    document.body.append(bar.node);
    bar.update(controls);
    return bar;
  };

  it('tell a text of several lines letter by letter, and of Ctrl and Enter', () => {
    const told: string[] = [];
    const area = (value: string, fault?: string): Control => ({
      kind: 'area',
      id: 'prompt',
      label: 'Prompt',
      value,
      fault,
      change: text => told.push(text),
      enter: () => told.push('entered')
    });
    const bar = form(area(''));
    const field = bar.node.querySelector('textarea') as HTMLTextAreaElement;
    expect(field.closest('label')?.textContent).toBe('Prompt');
    field.focus();
    field.value = 'a\nb';
    field.dispatchEvent(new Event('input'));
    field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }));
    field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', ctrlKey: true, cancelable: true }));
    expect(told).toEqual(['a\nb', 'entered']);
    // What is being written stays, whatever is told meanwhile.
    bar.update([area('', 'Too long.')]);
    expect([field.value, field.getAttribute('aria-invalid'), field.title]).toEqual([
      'a\nb',
      'true',
      'Too long.'
    ]);
    field.blur();
    bar.update([area('c')]);
    expect([field.value, field.getAttribute('aria-invalid'), field.title]).toEqual(['c', 'false', '']);
  });

  it('hold a number to its bounds, and round it where it is no fraction', () => {
    const told: number[] = [];
    const number = (isFraction: boolean): Control => ({
      kind: 'number',
      id: isFraction ? 'share' : 'count',
      label: 'n',
      value: 1,
      least: 0,
      most: 2,
      isFraction,
      change: value => told.push(value)
    });
    const bar = form(number(true), number(false));
    for (const field of bar.node.querySelectorAll('input')) {
      for (const value of ['0.25', '7']) {
        field.value = value;
        field.dispatchEvent(new Event('change'));
      }
    }
    expect(told).toEqual([0.25, 2, 0, 2]);
  });

  it('are sent by a button, and say what became of it', () => {
    const press = jest.fn();
    const button = (isDisabled: boolean): Control => ({
      kind: 'button',
      id: 'go',
      text: 'Go',
      title: 'Go on',
      isDisabled,
      press
    });
    const status = (text: string, isFault = false): Control => ({
      kind: 'status',
      id: 'said',
      text,
      isFault
    });
    const bar = form(button(false), status(''));
    const [go, said] = [bar.node.querySelector('button'), bar.node.querySelector('[role=status]')];
    go?.click();
    bar.update([button(true), status('Refused.', true)]);
    go?.click();
    expect(press).toHaveBeenCalledTimes(1);
    expect([said?.textContent, said?.classList.contains('jp-mod-fault')]).toEqual(['Refused.', true]);
  });
});
