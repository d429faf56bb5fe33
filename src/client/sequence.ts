import { BIT_CAUGHT_UP, type IFrame } from '../protocol/frame';
import type { Hello } from '../protocol/messages.generated';

/** Frames that did not come: sequence numbers, both inclusive. */
export interface IGap {
  readonly first: number;
  readonly last: number;
  /** Whether the hub said that it gave rows up for this viewer. */
  readonly announced: boolean;
}

/**
 * Follows the sequence numbers of one run over all its links: what is new, what is double, what is missing.
 *
 * The numbers rise within a link, those of caught-up frames too, so the newest one says all that this side has.
 */
export class Sequence {
  /** Newest number that this side has, or null; what a join names as `since`. */
  get since(): number | null {
    return this.newest;
  }

  /**
   * Take in the first hello of a link.
   *
   * @returns Whether the numbering goes on; false when the hub counts anew and everything it sends is a first time.
   */
  begin(hello: Hello): boolean {
    const resumes = this.newest !== null && hello.resumed !== undefined && hello.seq >= this.newest;
    if (!resumes) {
      this.newest = null;
    }
    this.resumedLate = (hello.resumed?.missed_frames ?? 0) > 0;
    this.promised = hello.seq;
    this.dropped = 0;
    this.open = [];
    return resumes;
  }

  /** Take in a frame. Answers false for one that came before. */
  accept(frame: IFrame): boolean {
    this._jumped = false;
    if (this.newest !== null && frame.seq <= this.newest) {
      return false;
    }
    if ((frame.bits & BIT_CAUGHT_UP) === 0) {
      // Up to the number in hello the backlog came, and hello said what it lacks.
      const before = Math.max(this.newest ?? 0, this.promised);
      if (frame.seq > before + 1) {
        this.open.push({ first: before + 1, last: frame.seq - 1 });
        this._jumped = true;
      }
    }
    this._jumped ||= this.resumedLate;
    this.resumedLate = false;
    this.newest = frame.seq;
    return true;
  }

  /** Whether frames are missing before the one that was accepted last. */
  get jumped(): boolean {
    return this._jumped;
  }

  /**
   * Close the gaps seen so far, with the next status's count of rows that the hub gave up for this viewer.
   *
   * @param dropped - `status.dropped.viewer`.
   */
  settle(dropped: number): IGap[] {
    const announced = dropped > this.dropped;
    this.dropped = dropped;
    const gaps = this.open.map(gap => ({ ...gap, announced }));
    this.open = [];
    return gaps;
  }

  private newest: number | null = null;
  private promised = 0;
  private dropped = 0;
  private _jumped = false;
  /** Whether the hub could not send again all that this side missed. */
  private resumedLate = false;
  private open: { first: number; last: number }[] = [];
}
