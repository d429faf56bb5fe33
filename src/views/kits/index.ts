export { lanes, lanesOf } from './lanes-kit';
export { lines, linesOf } from './lines-kit';
export { matrix, matrixOf } from './matrix-kit';
export { points, pointsOf } from './points-kit';
export { text, textOf } from './text-kit';
