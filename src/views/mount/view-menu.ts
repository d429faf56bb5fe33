import type { ViewOptions } from '../../protocol/views.generated';
import { copyText, saveFile, saveText } from './dom';
import type { IMenuItem } from './menu';
import type { Translate } from '../shared/translate';

/** What a view's menu acts on. */
export interface IMenuSubject {
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

/**
 * The entries of a view's menu.
 *
 * @param name Name of saved files, without ending.
 * @param options What a report takes.
 */
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
