// Called millions of times: in a vm context each look at a global takes longer than the number.
const { imul } = Math;

/**
 * Numbers that look random and are the same for the same seed, on every machine: whole numbers and no
 * functions whose last digit browsers may choose.
 */
export class SeededRandom {
  /** @param seed - Any whole number below 2³². */
  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  /** A whole number below 2³² (mulberry32, Tommy Ettinger, public domain). */
  whole(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed ^= mixed + imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** A number from -0.5 up to, but not, 0.5. */
  centred(): number {
    return this.whole() / 4294967296 - 0.5;
  }

  /** A whole number from 0 up to, but not, a limit below 2³¹. */
  below(limit: number): number {
    return (this.whole() * (limit / 4294967296)) | 0;
  }

  private state: number;
}
