export { lines, linesOf } from './lines-kit';
