/**
 * The syntax of patterns over names, which page, kernel and server share: what can be matched in time linear in the name, and reads the same in
 * JavaScript, Python and RE2. `protocol/README.md` lists it; `pattern_syntax.py` reads the same, and `protocol/fixtures/patterns.json` holds both to it.
 */

/** Code points as pairs of first and last, in order and apart. */
export type Ranges = readonly number[];

/** What a pattern means. */
export type PatternNode =
  | { readonly kind: 'set'; readonly ranges: Ranges }
  | { readonly kind: 'at'; readonly where: 'start' | 'end' | 'word' | 'not-word' }
  | { readonly kind: 'sequence' | 'choice'; readonly of: readonly PatternNode[] }
  | { readonly kind: 'group'; readonly of: PatternNode; readonly place: number }
  | {
      readonly kind: 'repeat';
      readonly of: PatternNode;
      readonly least: number;
      readonly most: number;
      readonly lazy: boolean;
    };

/** A pattern that was read. */
export interface IPatternSyntax {
  readonly root: PatternNode;
  /** Number of groups that capture. */
  readonly groups: number;
}

/** A pattern that cannot be used, and why: the end of a sentence. */
export class PatternError extends Error {
  override readonly name = 'PatternError';
}

/** Most characters of a pattern, and most positions in it once its repeats are written out. */
const [MOST_CHARACTERS, MOST_POSITIONS] = [500, 1000];
const LAST = 0x10ffff;
const DIGIT = [0x30, 0x39];
const WORD = [0x30, 0x39, 0x41, 0x5a, 0x5f, 0x5f, 0x61, 0x7a];
const SPACE = [0x09, 0x0d, 0x20, 0x20];
const ALL_BUT_NEWLINE = [0, 0x09, 0x0b, LAST];
const CONTROLS: ReadonlyMap<string, number> = new Map(
  Object.entries({ t: 0x09, n: 0x0a, v: 0x0b, f: 0x0c, r: 0x0d })
);
const LOOK_AROUND =
  'it looks ahead or behind with (?=, (?!, (?<= or (?<!, which cannot be done in linear time';
const REFERS_BACK =
  'it refers back to what a group found, with \\1 or \\k, which cannot be done in linear time';

/**
 * Read a pattern.
 *
 * @throws PatternError
 */
export function readSyntax(text: string): IPatternSyntax {
  return new Reader(text).read();
}

class Reader {
  constructor(private readonly _text: string) {
    this._letters = Array.from(_text);
  }

  read(): IPatternSyntax {
    if (this._letters.length > MOST_CHARACTERS) {
      throw new PatternError(
        `it must have at most ${MOST_CHARACTERS} characters, got ${this._letters.length}`
      );
    }
    if (/\p{Cs}/u.test(this._text)) {
      throw new PatternError('it holds half a character');
    }
    this._folds = this._take('(?i)');
    const root = this._choice();
    if (this._at < this._letters.length) {
      throw new PatternError('a ) closes nothing; write \\) for the character');
    }
    if (positions(root) > MOST_POSITIONS) {
      throw new PatternError(`with its repeats written out it has more than ${MOST_POSITIONS} positions`);
    }
    return { root, groups: this._groups };
  }

  private _choice(): PatternNode {
    const of = [this._sequence()];
    while (this._take('|')) {
      of.push(this._sequence());
    }
    return { kind: 'choice', of };
  }

  private _sequence(): PatternNode {
    const of: PatternNode[] = [];
    while (this._at < this._letters.length && !this._sees('|') && !this._sees(')')) {
      of.push(this._repeated());
    }
    return { kind: 'sequence', of };
  }

  private _repeated(): PatternNode {
    const of = this._quantifier() === null ? this._atom() : this._nothingToRepeat();
    const times = this._quantifier();
    if (times === null) {
      return of;
    }
    const lazy = this._take('?');
    if (of.kind === 'at' || this._quantifier() !== null) {
      this._nothingToRepeat();
    }
    return { kind: 'repeat', of, least: times[0], most: times[1], lazy };
  }

  private _nothingToRepeat(): never {
    throw new PatternError('*, +, ? or {} has nothing to repeat; write \\* for the character');
  }

  /** How often what stands before is repeated; null where nothing says so. A { that says no number is the character. */
  private _quantifier(): [number, number] | null {
    if (this._take('*')) {
      return [0, Infinity];
    }
    if (this._take('+')) {
      return [1, Infinity];
    }
    if (this._take('?')) {
      return [0, 1];
    }
    const found = /^\{([0-9]{1,4})(,?)([0-9]{0,4})\}/.exec(
      this._letters.slice(this._at, this._at + 11).join('')
    );
    if (found === null || (found[2] === '' && found[3] !== '')) {
      return null;
    }
    this._at += found[0].length;
    const least = Number(found[1]);
    const most = found[2] === '' ? least : found[3] === '' ? Infinity : Number(found[3]);
    if (least > most) {
      throw new PatternError(`${found[0]} must have its smaller number first`);
    }
    return [least, most];
  }

  private _atom(): PatternNode {
    if (this._take('(')) {
      return this._group();
    }
    if (this._take('[')) {
      return { kind: 'set', ranges: this._class() };
    }
    if (this._take('.')) {
      return { kind: 'set', ranges: ALL_BUT_NEWLINE };
    }
    if (this._take('^')) {
      return { kind: 'at', where: 'start' };
    }
    if (this._take('$')) {
      return { kind: 'at', where: 'end' };
    }
    if (this._take('\\b')) {
      return { kind: 'at', where: 'word' };
    }
    if (this._take('\\B')) {
      return { kind: 'at', where: 'not-word' };
    }
    const found = this._sees('\\') ? this._escape() : this._character();
    return { kind: 'set', ranges: typeof found === 'number' ? this._folded([found, found]) : found };
  }

  private _group(): PatternNode {
    if (['?=', '?!', '?<=', '?<!'].some(each => this._sees(each))) {
      throw new PatternError(LOOK_AROUND);
    }
    const captures = !this._take('?:');
    if (captures && (this._take('?P<') || this._take('?<'))) {
      const end = this._letters.indexOf('>', this._at);
      const name = this._letters.slice(this._at, Math.max(this._at, end)).join('');
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || this._names.has(name)) {
        throw new PatternError('a group must have a name of its own, of letters, digits and _');
      }
      this._names.add(name);
      this._at = end + 1;
    } else if (captures && this._sees('?')) {
      throw new PatternError('(? must begin (?:, (?P<name> or, at the start, (?i)');
    }
    const place = captures ? (this._groups += 1) : 0;
    const of = this._choice();
    if (!this._take(')')) {
      throw new PatternError('a ( is not closed; write \\( for the character');
    }
    return captures ? { kind: 'group', of, place } : of;
  }

  /** What a class in brackets takes, after the opening one. */
  private _class(): Ranges {
    const negated = this._take('^');
    const ranges: number[] = [];
    do {
      if (this._at >= this._letters.length) {
        throw new PatternError('a [ is not closed; write \\[ for the character');
      }
      if (this._sees(']')) {
        throw new PatternError('a class in [] must not be empty; write \\] for the character');
      }
      if (this._sees('[:')) {
        throw new PatternError('classes by name such as [:alpha:] are not known');
      }
      const first = this._sees('\\') ? this._escape() : this._character();
      if (typeof first !== 'number') {
        ranges.push(...first);
      } else if (this._sees('-') && !this._sees('-]')) {
        this._at += 1;
        const last = this._sees('\\')
          ? this._escape()
          : this._at < this._letters.length
            ? this._character()
            : -1;
        if (typeof last !== 'number' || last < first) {
          throw new PatternError('a range in [] must go from a lower to a higher character');
        }
        ranges.push(first, last);
      } else {
        ranges.push(first, first);
      }
    } while (!this._take(']'));
    const whole = joined(this._folded(ranges));
    return negated ? allBut(whole) : whole;
  }

  /** One character, or a class of them. */
  private _escape(): number | Ranges {
    const letter = this._letters[this._at + 1] ?? '';
    this._at += 2;
    const control = CONTROLS.get(letter);
    if (control !== undefined) {
      return control;
    }
    switch (letter) {
      case 'd':
        return DIGIT;
      case 'D':
        return allBut(DIGIT);
      case 'w':
        return WORD;
      case 'W':
        return allBut(WORD);
      case 's':
        return SPACE;
      case 'S':
        return allBut(SPACE);
      case 'x':
        return this._hex(2);
      case 'u':
        return this._hex(4);
    }
    if (/^[1-9k]$/.test(letter)) {
      throw new PatternError(REFERS_BACK);
    }
    // Punctuation stands for itself.
    if (!/^[ -/:-@[-`{-~]$/.test(letter)) {
      throw new PatternError(`\\${letter} is not known`);
    }
    return letter.charCodeAt(0);
  }

  private _hex(digits: number): number {
    const text = this._letters.slice(this._at, this._at + digits).join('');
    const value = /^[0-9A-Fa-f]+$/.test(text) && text.length === digits ? parseInt(text, 16) : NaN;
    if (!(value < 0xd800 || value > 0xdfff)) {
      throw new PatternError('\\x must have two hexadecimal digits, \\u four of a whole character');
    }
    this._at += digits;
    return value;
  }

  private _character(): number {
    this._at += 1;
    return this._letters[this._at - 1]?.codePointAt(0) ?? 0;
  }

  /** With both cases of the letters from A to Z, where the pattern says so. */
  private _folded(ranges: Ranges): Ranges {
    return this._folds
      ? joined([...ranges, ...within(ranges, 0x41, 0x5a, 32), ...within(ranges, 0x61, 0x7a, -32)])
      : ranges;
  }

  private _sees(text: string): boolean {
    return this._letters.slice(this._at, this._at + text.length).join('') === text;
  }

  private _take(text: string): boolean {
    const found = this._sees(text);
    this._at += found ? text.length : 0;
    return found;
  }

  private readonly _letters: readonly string[];
  private readonly _names = new Set<string>();
  private _at = 0;
  private _groups = 0;
  private _folds = false;
}

/** Positions of a pattern with its repeats written out. */
function positions(node: PatternNode): number {
  switch (node.kind) {
    case 'set':
    case 'at':
      return 1;
    case 'group':
      return 1 + positions(node.of);
    case 'repeat':
      return positions(node.of) * Math.max(1, node.most === Infinity ? node.least : node.most);
    default:
      return node.of.reduce((sum, each) => sum + positions(each), 1);
  }
}

/** What of ranges lies between two code points, moved. */
function within(ranges: Ranges, first: number, last: number, by: number): number[] {
  const found: number[] = [];
  for (let at = 0; at < ranges.length; at += 2) {
    const [low, high] = [Math.max(first, ranges[at] ?? 0), Math.min(last, ranges[at + 1] ?? 0)];
    if (low <= high) {
      found.push(low + by, high + by);
    }
  }
  return found;
}

/** Ranges in order, those that meet made one. */
function joined(ranges: Ranges): Ranges {
  const pairs = Array.from({ length: ranges.length / 2 }, (_, at) => [
    ranges[2 * at] ?? 0,
    ranges[2 * at + 1] ?? 0
  ]);
  const found: number[] = [];
  for (const [low = 0, high = 0] of pairs.sort(([a = 0], [b = 0]) => a - b)) {
    const end = found.length - 1;
    if (end > 0 && low <= (found[end] ?? 0) + 1) {
      found[end] = Math.max(found[end] ?? 0, high);
    } else {
      found.push(low, high);
    }
  }
  return found;
}

/** Every code point that ranges lack. */
function allBut(ranges: Ranges): Ranges {
  const edges = [-1, ...ranges, LAST + 1];
  const found: number[] = [];
  for (let at = 0; at < edges.length; at += 2) {
    const [low, high] = [(edges[at] ?? 0) + 1, (edges[at + 1] ?? 0) - 1];
    if (low <= high) {
      found.push(low, high);
    }
  }
  return found;
}
