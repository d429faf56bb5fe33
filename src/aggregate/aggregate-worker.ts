import { MomentTables } from './moment-tables';
import { Projections } from '../instruments/generation/aggregate/projection/projections';
import { answer, type Buffers, type WorkerRequest } from './worker-port';

/** The worker's side of the page; its types are not those of a page. */
interface IWorkerScope {
  onmessage: ((event: { data: WorkerRequest }) => void) | null;
  postMessage(message: unknown, transfer: Buffers): void;
}

const scope = globalThis as unknown as IWorkerScope;

const tables = new MomentTables();
const projections = new Projections();

scope.onmessage = event => {
  scope.postMessage(...answer(event.data, tables, projections));
};
