export { toCode } from './code';
export { LEAST_INTERVAL } from './mount/drawing';
export { mountView } from './registry';
export { untranslated, type Translate } from './shared/translate';
export type { IView, IViewHost, IViewRuns } from './view';
