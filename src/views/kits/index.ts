export { lanes, lanesOf } from './lanes-kit';
export { lines, linesOf } from './lines-kit';
export { text, textOf } from './text-kit';
