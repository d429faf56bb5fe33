import { AggregateError, type AggregateErrorCode } from './moment-merge';

/** The buffers of a question or an answer, which are handed over instead of copied. */
export type Buffers = ArrayBufferLike[];

export interface IWorkerRequest<Q> {
  readonly id: number;
  readonly question: Q;
}

export type WorkerReply<A> =
  | { readonly id: number; readonly answer: A }
  | { readonly id: number; readonly error: string; readonly code: AggregateErrorCode };

/** The worker's side of the page; its types are not those of a page. */
interface IWorkerScope<Q> {
  onmessage: ((event: { data: IWorkerRequest<Q> }) => void) | null;
  postMessage(message: unknown, transfer: Buffers): void;
}

/** Answer whatever the page asks; with each answer come the buffers that can be handed over. */
export function serve<Q, A>(answer: (question: Q) => readonly [A, Buffers]): void {
  const scope = globalThis as unknown as IWorkerScope<Q>;
  scope.onmessage = ({ data: { id, question } }) => {
    const reply = (message: WorkerReply<A>, buffers: Buffers): void => scope.postMessage(message, buffers);
    try {
      const [result, buffers] = answer(question);
      reply({ id, answer: result }, buffers);
    } catch (error) {
      const code = error instanceof AggregateError ? error.code : 'invalid';
      reply({ id, error: error instanceof Error ? error.message : String(error), code }, []);
    }
  };
}
