/** Refused messages and frames of one link after which it is left, and milliseconds that refusing them may take. */
const MOST = 200;
const MOST_MS = 3000;

/**
 * How much of what cannot be read one link is forgiven. A hub of a later version may say some things that are not known here; one that says
 * nothing else, or what takes long to refuse, would keep the page busy for good.
 */
export class Patience {
  /**
   * Note that something was refused.
   *
   * @param ms - How long that took.
   * @returns Whether there is patience left.
   */
  refused(ms: number): boolean {
    this.count += 1;
    this.ms += ms;
    return this.count <= MOST && this.ms <= MOST_MS;
  }

  /** A new link begins. */
  begin(): void {
    this.count = 0;
    this.ms = 0;
  }

  private count = 0;
  private ms = 0;
}
