/** A number in a text. Figures are as wide as one another. */
const NUMBERS = /[-\u2212]?\d[\d.\u202f]*(?:e[-\u2212]?\d+)?/g;

interface ITaken {
  readonly words: string;
  readonly figures: number;
}

/**
 * The room that texts take. While only numbers in them change it grows and does not shrink: to lay something out again takes longer than to draw it,
 * and nothing should jump.
 */
export class Room {
  /** Whether what is said now has room. */
  holds(name: string, texts: unknown): boolean {
    const [room, asked] = [this._taken.get(name), takenBy(texts)];
    return room?.words === asked.words && room.figures >= asked.figures;
  }

  /** All is laid out with this. */
  take(name: string, texts: unknown): void {
    this._taken.set(name, takenBy(texts));
  }

  private readonly _taken = new Map<string, ITaken>();
}

/** What one text or several, in a list or by number, take: words as they are, and of numbers how long the longest is. */
function takenBy(of: unknown): ITaken {
  const texts = (typeof of === 'object' && of !== null ? Object.values(of) : [of ?? '']).map(String);
  const numbers = texts.flatMap(text => text.match(NUMBERS) ?? []);
  return {
    words: texts.map(text => text.replace(NUMBERS, '0')).join('\n'),
    figures: Math.max(0, ...numbers.map(number => number.length))
  };
}
