import { readSyntax, type PatternNode, type Ranges } from './pattern-syntax';

/** What a state does before the one after it follows. */
type State =
  | { readonly kind: 'take'; readonly takes: (code: number) => boolean }
  /** Two ways on; the first counts more. */
  | { readonly kind: 'split'; first: number; second: number }
  | { readonly kind: 'save'; readonly slot: number }
  | Extract<PatternNode, { kind: 'at' }>
  | { readonly kind: 'found' };

/** Where what is found and its groups begin and end, -1 for nowhere. Never changed: ways share them. */
type Slots = readonly number[];

/** The states at one place of a text, those that count more first; all that decides whether something is found further on. */
interface IPlace {
  readonly states: readonly number[];
  /** What stands before it. */
  readonly before: Before;
  /** The place after each ASCII character, and after the end, where it is known; true where something is found before it. */
  readonly next: (IPlace | true | undefined)[];
}

/** What stands before a place, by a code that stands for all of its kind: nothing, a character of words, another one. */
type Before = typeof NOTHING | typeof IN_WORD | typeof OTHER;

const [NOTHING, IN_WORD, OTHER] = [-1, 0x61, 0x20] as const;

const NO_SLOTS: Slots = [];
/** Most places that are remembered; then remembering begins anew. */
const MOST_PLACES = 1000;
const END = 128;

/**
 * A pattern that is looked for somewhere in names, in time linear in the name whatever the pattern is: all ways through it are followed at once, in the order
 * in which a backtracking engine would try them, so that groups find what RE2 says (R. Cox, *Regular Expression Matching: the Virtual Machine Approach*, 2009).
 * Where only whether it is found matters, a set of states is worked out once for each character that can follow it.
 */
export class Pattern {
  /** @throws PatternError */
  constructor(readonly text: string) {
    const { root, groups } = readSyntax(text);
    this.groups = groups;
    this._compile(root);
    this._states.push({ kind: 'found' });
    this._entered = new Int32Array(this._states.length);
  }

  /** Number of groups that capture. */
  readonly groups: number;

  /** Whether it is found in a name. */
  test(name: string): boolean {
    let place = this._place([], NOTHING);
    for (let at = 0; at < name.length;) {
      const code = name.codePointAt(at) ?? 0;
      const next = this._after(place, code);
      if (next === true) {
        return true;
      }
      place = next;
      at += code > 0xffff ? 2 : 1;
    }
    return this._after(place, -1) === true;
  }

  /** What is found first in a name, then what each group found, undefined for one that took no part; null where nothing is found. */
  exec(name: string): (string | undefined)[] | null {
    const slots = this.test(name) ? this._find(name) : null;
    return (
      slots &&
      Array.from({ length: this.groups + 1 }, (_, group) => {
        const [from = -1, to = -1] = [slots[2 * group], slots[2 * group + 1]];
        return from < 0 || to < 0 ? undefined : name.slice(from, to);
      })
    );
  }

  /** What its groups find in a name, a point between them; the whole of what is found where there are none; null where nothing is. */
  capture(name: string): string | null {
    const [whole = '', ...groups] = this.exec(name) ?? [null];
    return whole === null || groups.length === 0 ? whole : groups.map(text => text ?? '').join('.');
  }

  /** Where what is found first and its groups lie. */
  private _find(name: string): Slots | null {
    const nowhere: Slots = new Array<number>(2 * this.groups + 2).fill(-1);
    let best: Slots | null = null;
    let [states, slots]: [number[], Slots[]] = [[], []];
    for (let at = 0, before = -1; at <= name.length && (best === null || states.length > 0);) {
      const code = name.codePointAt(at) ?? -1;
      const next = states.length > 0 ? true : this._after(this._place([], kindOf(before)), code);
      // Nothing begins here, most of the time.
      if (next === true || next.states.length > 0) {
        const [nextStates, nextSlots]: [number[], Slots[]] = [[], []];
        this._begin(before, code);
        states.forEach((state, way) => this._enter(state, slots[way] ?? NO_SLOTS, at));
        if (best === null) {
          this._enter(0, put(nowhere, 0, at), at);
        }
        for (let way = 0; way < this._open.length; way += 1) {
          const place = this._open[way] ?? 0;
          const state = this._states[place];
          const held = this._held[way] ?? NO_SLOTS;
          if (state?.kind === 'found') {
            best = put(held, 1, at);
            // The ways after this one count less.
            break;
          }
          if (state?.kind === 'take' && state.takes(code)) {
            nextStates.push(place + 1);
            nextSlots.push(held);
          }
        }
        [states, slots] = [nextStates, nextSlots];
      }
      before = code;
      at += code > 0xffff ? 2 : 1;
    }
    return best;
  }

  /** The place after a character, -1 for the end; true where something is found before it. */
  private _after(place: IPlace, code: number): IPlace | true {
    const key = code < 0 ? END : code;
    const known = place.next[key];
    if (known !== undefined) {
      return known;
    }
    this._begin(place.before, code);
    place.states.forEach(state => this._enter(state, NO_SLOTS, -1));
    this._enter(0, NO_SLOTS, -1);
    const found = this._open.some(state => this._states[state]?.kind === 'found');
    const takes = (state: number): boolean => {
      const each = this._states[state];
      return each?.kind === 'take' && each.takes(code);
    };
    const next = found
      ? true
      : this._place(
          this._open.filter(takes).map(state => state + 1),
          kindOf(code)
        );
    if (key <= END) {
      place.next[key] = next;
    }
    return next;
  }

  private _place(states: readonly number[], before: Before): IPlace {
    const start = states.length === 0 ? this._starts.get(before) : undefined;
    if (start !== undefined) {
      return start;
    }
    const key = `${before} ${states.join(' ')}`;
    const place = this._places.get(key) ?? { states, before, next: [] };
    if (this._places.size >= MOST_PLACES) {
      this._places.clear();
    }
    this._places.set(key, place);
    if (states.length === 0) {
      this._starts.set(before, place);
    }
    return place;
  }

  private _begin(before: number, after: number): void {
    this._between = [before, after];
    this._turn += 1;
    this._open.length = 0;
    this._held.length = 0;
  }

  /** Go on to the states that take a character. Who comes second to a state comes by a way that counts less. */
  private _enter(place: number, slots: Slots, at: number): void {
    if (this._entered[place] === this._turn) {
      return;
    }
    this._entered[place] = this._turn;
    const state = this._states[place];
    switch (state?.kind) {
      case 'split':
        this._enter(state.first, slots, at);
        this._enter(state.second, slots, at);
        return;
      case 'save':
        this._enter(place + 1, at < 0 ? slots : put(slots, state.slot, at), at);
        return;
      case 'at':
        if (stands(state.where, this._between)) {
          this._enter(place + 1, slots, at);
        }
        return;
      default:
        this._open.push(place);
        this._held.push(slots);
    }
  }

  private _compile(node: PatternNode): void {
    switch (node.kind) {
      case 'set':
        this._states.push({ kind: 'take', takes: taker(node.ranges) });
        return;
      case 'at':
        this._states.push(node);
        return;
      case 'group':
        this._states.push({ kind: 'save', slot: 2 * node.place });
        this._compile(node.of);
        this._states.push({ kind: 'save', slot: 2 * node.place + 1 });
        return;
      case 'sequence':
        node.of.forEach(each => this._compile(each));
        return;
      case 'choice':
        this._choose(node.of);
        return;
      case 'repeat':
        this._repeat(node);
    }
  }

  private _choose(ways: readonly PatternNode[]): void {
    const ends = ways.map((way, at) => {
      const split = at < ways.length - 1 ? this._split() : null;
      this._compile(way);
      const end = split && this._split();
      if (split !== null) {
        split.second = this._states.length;
      }
      return end;
    });
    for (const end of ends) {
      if (end !== null) {
        end.first = end.second = this._states.length;
      }
    }
  }

  private _repeat({ of, least, most, lazy }: Extract<PatternNode, { kind: 'repeat' }>): void {
    const some = (): void => {
      const start = this._states.length;
      this._compile(of);
      const split = this._split();
      [split.first, split.second] = lazy ? [split.first, start] : [start, split.first];
    };
    const maybe = (inner: () => void): void => {
      const split = this._split();
      inner();
      const end = this._states.length;
      [split.first, split.second] = lazy ? [end, split.first] : [split.first, end];
    };
    const upTo = (times: number): void =>
      times > 0
        ? maybe(() => {
            this._compile(of);
            upTo(times - 1);
          })
        : undefined;
    const needed = most === Infinity ? least - 1 : least;
    for (let at = 0; at < needed; at += 1) {
      this._compile(of);
    }
    if (most !== Infinity) {
      upTo(most - least);
    } else if (least > 0) {
      some();
    } else {
      // Of what may be empty, x* by itself would lose the order of the ways: it is (x+)?.
      maybe(some);
    }
  }

  /** Add a split, both of whose ways lead to what comes next until they are changed. */
  private _split(): Extract<State, { kind: 'split' }> {
    const next = this._states.length + 1;
    const split = { kind: 'split' as const, first: next, second: next };
    this._states.push(split);
    return split;
  }

  private readonly _states: State[] = [];
  /** The turn in which each state was entered last. */
  private readonly _entered: Int32Array;
  private _turn = 0;
  /** The characters between which the ways stand, -1 for none. */
  private _between: readonly [number, number] = [-1, -1];
  /** States that were entered in this turn, and their slots. */
  private readonly _open: number[] = [];
  private readonly _held: Slots[] = [];
  private readonly _places = new Map<string, IPlace>();
  /** Places at which no way is open yet, by what stands before them. */
  private readonly _starts = new Map<Before, IPlace>();
}

const put = (slots: Slots, at: number, value: number): Slots =>
  slots.map((each, slot) => (slot === at ? value : each));

const kindOf = (code: number): Before => (code < 0 ? NOTHING : isWord(code) ? IN_WORD : OTHER);

const isWord = (code: number): boolean =>
  code === 0x5f ||
  (code >= 0x30 && code <= 0x39) ||
  (code >= 0x41 && code <= 0x5a) ||
  (code >= 0x61 && code <= 0x7a);

function stands(
  where: Extract<PatternNode, { kind: 'at' }>['where'],
  between: readonly [number, number]
): boolean {
  const [before, after] = between;
  switch (where) {
    case 'start':
      return before < 0;
    case 'end':
      return after < 0;
    case 'word':
      return isWord(before) !== isWord(after);
    case 'not-word':
      return isWord(before) === isWord(after);
  }
}

/** Names are ASCII but for a few: those characters are looked up. */
function taker(ranges: Ranges): (code: number) => boolean {
  const takes = (code: number): boolean => {
    for (let at = 0; at < ranges.length; at += 2) {
      if (code <= (ranges[at + 1] ?? -1)) {
        return code >= (ranges[at] ?? 0);
      }
    }
    return false;
  };
  const ascii = Uint8Array.from({ length: 128 }, (_, code) => Number(takes(code)));
  return code => (code < 128 ? ascii[code] === 1 : takes(code));
}
