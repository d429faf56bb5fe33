import { own } from '../../protocol/records';
import type { ViewOptions } from '../../protocol/views.generated';
import type { Translate } from '../shared/translate';
import { copyText, saveFile, saveText, element, focusNear } from './dom';

interface IMenuSubject {
  code(): string;
  summary(): string;
  toSVG(): Promise<string>;
  /** The picture as a data URL. */
  toPNG(): Promise<string>;
}

/** What else a view's menu can do; what is absent is not offered. */
export interface IMenuActions {
  resetZoom?: (() => void) | undefined;
  /** Choose the steps that are shown, for the run's other views. */
  chooseShown?: (() => void) | undefined;
  exportReport?: ((options: ViewOptions) => void) | undefined;
  /** The picture's table as code for arquero. */
  arquero?: (() => Promise<string>) | undefined;
}

/** The entries of a view's menu. */
export function viewMenu(
  view: IMenuSubject,
  name: string,
  options: ViewOptions,
  { resetZoom, chooseShown, exportReport, arquero }: IMenuActions,
  t: Translate
): IMenuItem[] {
  return [
    { label: t('Copy as code'), run: () => copyText(view.code()) },
    ...(arquero ? [{ label: t('Copy as arquero'), run: async () => copyText(await arquero()) }] : []),
    { label: t('Copy summary'), run: () => copyText(view.summary()) },
    {
      label: t('Save picture as SVG'),
      run: async () => saveText(`${name}.svg`, 'image/svg+xml', await view.toSVG())
    },
    { label: t('Save picture as PNG'), run: async () => saveFile(`${name}.png`, await view.toPNG()) },
    ...(resetZoom ? [{ label: t('Reset zoom'), run: resetZoom }] : []),
    ...(chooseShown ? [{ label: t('Show only these steps in the other views'), run: chooseShown }] : []),
    ...(exportReport ? [{ label: t('Export report…'), run: () => exportReport(options) }] : [])
  ];
}

interface IMenuItem {
  label: string;
  run: () => void | Promise<void>;
}

/** A button that opens a list of actions: arrows move, Enter chooses, Esc closes. */
export class Menu {
  constructor(
    label: string,
    private readonly _items: () => readonly IMenuItem[],
    private readonly _failed: (reason: unknown) => void
  ) {
    this._button = element(
      'button',
      {
        class: 'jp-MegalensButton',
        type: 'button',
        title: label,
        'aria-label': label,
        'aria-haspopup': 'menu'
      },
      '⋯'
    );
    this._button.setAttribute('aria-expanded', 'false');
    this._list = element('div', { class: 'jp-MegalensMenu', role: 'menu', 'aria-label': label, hidden: '' });
    this.node = element('div', { class: 'jp-MegalensMenuAnchor' }, this._button, this._list);
    this._button.addEventListener('click', () => (this._list.hidden ? this._open() : this._close()));
    this.node.addEventListener('keydown', this._onKey);
    this.node.addEventListener('focusout', event => {
      if (!this.node.contains(event.relatedTarget as Node | null)) {
        this._close();
      }
    });
  }

  readonly node: HTMLElement;

  private _open(): void {
    const buttons = this._items().map(item => {
      const button = element('button', { role: 'menuitem', type: 'button', tabindex: '-1' }, item.label);
      button.addEventListener('click', () => {
        this._close();
        this._button.focus();
        void Promise.resolve()
          .then(() => item.run())
          .catch(this._failed);
      });
      return button;
    });
    this._list.replaceChildren(...buttons);
    this._list.hidden = false;
    this._button.setAttribute('aria-expanded', 'true');
    buttons[0]?.focus();
  }

  private _close(): void {
    this._list.hidden = true;
    this._button.setAttribute('aria-expanded', 'false');
  }

  private _onKey = (event: KeyboardEvent): void => {
    if (this._list.hidden) {
      return;
    }
    const buttons = [...this._list.querySelectorAll('button')];
    const at = buttons.indexOf(focusNear(this.node) as HTMLButtonElement);
    const moves: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      Home: 0,
      End: buttons.length - 1
    };
    const to = own(moves, event.key);
    if (event.key === 'Escape') {
      this._close();
      this._button.focus();
    } else if (to !== undefined) {
      buttons[(to + buttons.length) % buttons.length]?.focus();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  private readonly _button: HTMLButtonElement;
  private readonly _list: HTMLElement;
}
