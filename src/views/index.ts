export { toCode } from './code';
export { LEAST_INTERVAL } from './mount/pace';
export { isViewName, mountView, VIEW_TITLES, type ViewName } from './registry';
export { untranslated, type Translate } from './shared/translate';
export type { IView, IViewHost, IViewRuns } from './view';
