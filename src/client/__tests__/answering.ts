import type { Ask, AskOf, IQuestion } from '../rest';
import type { IRunReader } from '../run-reader';

/** A reader's `asker` that knows one question. */
export function answering<R extends object, A>(
  { name }: IQuestion<R, A>,
  answer: Ask<R, A>
): NonNullable<IRunReader['asker']> {
  return function asker<R1 extends object, A1>(question: IQuestion<R1, A1>): AskOf<R1, A1> | undefined {
    const ask: unknown = (_id: string, request: R, signal?: AbortSignal) => answer(request, signal);
    return question.name === name ? (ask as AskOf<R1, A1>) : undefined;
  };
}
