import type { Configured, ErrorMessage } from '../protocol/messages.generated';
import { ProtocolError } from '../protocol/protocol-error';
import { ClientError } from './client-error';

interface IPending {
  resolve(message: Configured): void;
  reject(error: Error): void;
  accepted?: (message: Configured) => void;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** The changes that were asked for and not answered yet, by id. */
export class PendingChanges {
  /**
   * @param answerMs - How long the first answer may take. Being applied may take longer: training may be paused.
   */
  constructor(private readonly answerMs: number) {}

  /** Enter a change. The promise resolves when it is applied. */
  add(id: string, accepted?: (message: Configured) => void): Promise<Configured> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.take(id)?.reject(
          new ClientError(
            'timeout',
            'The training process did not answer the change in time. Check that it is running.'
          )
        );
      }, this.answerMs);
      this.pending.set(id, { resolve, reject, accepted, timer });
    });
  }

  /** Take in an answer to one of our ids; other viewers' are ignored. */
  configured(message: Configured): void {
    const entry = this.pending.get(message.id);
    if (entry === undefined) {
      return;
    }
    if (message.applied) {
      this.take(message.id)?.resolve(message);
    } else {
      clearTimeout(entry.timer);
      entry.accepted?.(message);
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

  private take(id: string): IPending | undefined {
    const entry = this.pending.get(id);
    this.pending.delete(id);
    clearTimeout(entry?.timer);
    return entry;
  }

  private readonly pending = new Map<string, IPending>();
}
