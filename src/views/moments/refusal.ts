import { AggregateError } from '../../aggregate';
import { ClientError } from '../../client/client-error';

/** Why a question about groups was refused, wherever it was answered; null where that is not why it failed. */
export function refusalOf(reason: unknown): 'mixed' | 'invalid' | null {
  for (let error = reason; error instanceof Error; error = error.cause) {
    const code =
      error instanceof AggregateError
        ? error.code
        : error instanceof ClientError
          ? error.serverCode
          : undefined;
    if (code === 'mixed') {
      return 'mixed';
    }
    if (code === 'invalid' || code === 'bad-parameter') {
      return 'invalid';
    }
  }
  return null;
}
