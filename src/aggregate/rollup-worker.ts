import { answerRollup, type IRollupRequest } from './rollup-port';

/** The worker's side of the page; its types are not those of a page. */
interface IWorkerScope {
  onmessage: ((event: { data: IRollupRequest }) => void) | null;
  postMessage(message: unknown, transfer: ArrayBufferLike[]): void;
}

const scope = globalThis as unknown as IWorkerScope;

scope.onmessage = event => {
  scope.postMessage(...answerRollup(event.data));
};
