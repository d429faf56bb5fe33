import type { IPanelHost } from '../../src/panel/shell/panel-host';

const nothing = (): Promise<null> => Promise.resolve(null);

/** Texts that were copied. */
export const copied: string[] = [];

/** A panel's host in a page without JupyterLab: it answers nothing and remembers what was copied. */
export const quietHost: IPanelHost = {
  openView: () => Promise.resolve(),
  tileViews: () => Promise.resolve(),
  openViews: () => [],
  openRuns: () => Promise.resolve(),
  copy: text => void copied.push(text),
  revealFolder: () => Promise.resolve(),
  reloadPage: () => undefined,
  askReport: nothing,
  askHub: nothing,
  askStatistics: nothing,
  askName: nothing,
  askNotes: nothing,
  askDelete: () => Promise.resolve(false),
  askKeepNewest: () => Promise.resolve([]),
  save: () => undefined,
  warn: () => undefined,
  alarm: () => undefined,
  share: () => undefined,
  tell: () => Promise.resolve(),
  progress: (_, work) => work,
  remember: () => undefined
};
