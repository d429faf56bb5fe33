/** How far back a match may lie, and how long it may be: the limits of the format. */
const WINDOW = 32_768;
const LONGEST = 258;
const SHORTEST = 4;
/** Places that are remembered, by what stands there. */
const SLOTS = 1 << 15;

const reversed = (code: number, bits: number): number => {
  let out = 0;
  for (let bit = 0; bit < bits; bit++) {
    out = (out << 1) | ((code >> bit) & 1);
  }
  return out;
};

/** Code and length in bits of each literal and length symbol of the fixed code (RFC 1951, 3.2.6), the first bit lowest. */
const SYMBOLS = Array.from({ length: 288 }, (_, symbol): readonly [number, number] =>
  symbol < 144
    ? [reversed(0x30 + symbol, 8), 8]
    : symbol < 256
      ? [reversed(0x190 + symbol - 144, 9), 9]
      : symbol < 280
        ? [reversed(symbol - 256, 7), 7]
        : [reversed(0xc0 + symbol - 280, 8), 8]
);

/** First value and extra bits of each length and distance symbol: every so many symbols one bit more (3.2.5). */
function bases(count: number, first: number, group: number): readonly (readonly [number, number])[] {
  let base = first;
  return Array.from({ length: count }, (_, symbol) => {
    const extra = Math.max(0, Math.floor(symbol / group) - 1);
    const entry = [base, extra] as const;
    base += 1 << extra;
    return entry;
  });
}
const LENGTHS = [...bases(28, 3, 4), [LONGEST, 0] as const];
const DISTANCES = bases(30, 1, 2);

/** The last symbol whose first value is not above a number. */
function symbolOf(value: number, table: readonly (readonly [number, number])[]): number {
  let symbol = table.length - 1;
  while ((table[symbol]?.[0] ?? 0) > value) {
    symbol -= 1;
  }
  return symbol;
}

/**
 * Compress bytes as one block of DEFLATE with the fixed code. It finds what pictures have most: cells, rows and colours that repeat. Where a page
 * or a server is at hand there are better ways; this one needs neither.
 */
export function deflate(bytes: Uint8Array): Uint8Array {
  // A literal takes 9 bits at most.
  const out = new Uint8Array(Math.ceil((bytes.length * 9) / 8) + 16);
  let [at, held, count] = [0, 0, 0];
  const put = (value: number, bits: number): void => {
    held |= value << count;
    count += bits;
    while (count >= 8) {
      out[at++] = held & 255;
      held >>>= 8;
      count -= 8;
    }
  };
  const symbol = (which: number): void => put(...(SYMBOLS[which] ?? [0, 0]));
  const last = new Int32Array(SLOTS).fill(-WINDOW - 1);
  put(3, 3); // The only block, in the fixed code.
  for (let place = 0; place < bytes.length;) {
    const word =
      ((bytes[place] ?? 0) |
        ((bytes[place + 1] ?? 0) << 8) |
        ((bytes[place + 2] ?? 0) << 16) |
        ((bytes[place + 3] ?? 0) << 24)) >>>
      0;
    const slot = Math.imul(word, 0x9e3779b1) >>> 17;
    const before = last[slot] ?? -WINDOW - 1;
    last[slot] = place;
    const most = place - before <= WINDOW ? Math.min(LONGEST, bytes.length - place) : 0;
    let length = 0;
    while (length < most && bytes[before + length] === bytes[place + length]) {
      length += 1;
    }
    if (length < SHORTEST) {
      symbol(bytes[place] ?? 0);
      place += 1;
      continue;
    }
    const far = symbolOf(place - before, DISTANCES);
    const long = symbolOf(length, LENGTHS);
    symbol(257 + long);
    put(length - (LENGTHS[long]?.[0] ?? 0), LENGTHS[long]?.[1] ?? 0);
    put(reversed(far, 5), 5);
    put(place - before - (DISTANCES[far]?.[0] ?? 0), DISTANCES[far]?.[1] ?? 0);
    place += length;
  }
  symbol(256);
  put(0, 7); // What is held goes out with the next whole byte.
  return out.slice(0, at);
}
