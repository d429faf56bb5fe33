export { toCode } from './code';
export { LEAST_INTERVAL } from './pace';
export { mountView, type ViewName } from './registry';
export { untranslated, type Translate } from './translate';
export type { IView, IViewHost, IViewRuns, Mount } from './view';
