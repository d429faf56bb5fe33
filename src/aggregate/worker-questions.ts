import type { TableAnswer, TableQuestion } from './moment-tables';
import type { ITensorPack } from './moments-pack';

/** What the worker of this room can be asked. */
export type WorkerQuestion =
  | { readonly kind: 'moments'; readonly pack: ITensorPack }
  | { readonly kind: 'tables'; readonly question: TableQuestion };

/** What it answers: packed sums of each tensor, or what its tables say. */
export type WorkerAnswer =
  | { readonly kind: 'moments'; readonly packed: Float64Array }
  | { readonly kind: 'tables'; readonly answer: TableAnswer };
