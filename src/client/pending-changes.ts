import type { Configured, ErrorMessage, Generating } from '../protocol/messages.generated';
import { ProtocolError } from '../protocol/protocol-error';
import { ClientError } from './client-error';

interface IPending<M> {
  resolve(message: M): void;
  reject(error: Error): void;
  accepted?: (message: M) => void;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** What was asked for and not answered yet, by id: changes, or texts to write. */
export class PendingChanges<M extends Configured | Generating> {
  /**
   * @param answerMs - How long the first answer may take. Being applied may take longer: training may be paused.
   * @param late - What to say when it takes longer.
   */
  constructor(
    private readonly answerMs: number,
    private readonly late: string
  ) {}

  /** Enter what was asked for. The promise resolves with its last answer. */
  add(id: string, accepted?: (message: M) => void): Promise<M> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.take(id)?.reject(new ClientError('timeout', this.late));
      }, this.answerMs);
      this.pending.set(id, { resolve, reject, accepted, timer });
    });
  }

  /** Take in an answer to one of our ids; other viewers' are ignored. */
  answered(message: M): void {
    const entry = this.pending.get(message.id);
    if (entry === undefined) {
      return;
    }
    if (message.type === 'configured' && !message.applied) {
      clearTimeout(entry.timer);
      entry.accepted?.(message);
    } else {
      this.take(message.id)?.resolve(message);
    }
  }

  /** Take in an error. Answers whether it was one of ours. */
  refused(message: ErrorMessage): boolean {
    const entry = message.reply_to === undefined ? undefined : this.take(message.reply_to);
    entry?.reject(ProtocolError.fromMessage(message));
    return entry !== undefined;
  }

  /** Reject everything that is open. */
  rejectAll(error: Error): void {
    for (const id of [...this.pending.keys()]) {
      this.take(id)?.reject(error);
    }
  }

  private take(id: string): IPending<M> | undefined {
    const entry = this.pending.get(id);
    this.pending.delete(id);
    clearTimeout(entry?.timer);
    return entry;
  }

  private readonly pending = new Map<string, IPending<M>>();
}
