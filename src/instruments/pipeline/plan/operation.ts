/** Kinds of operations, by their number in columns. */
export const KINDS = ['F', 'B', 'I', 'W'] as const;

/** F forward pass, B whole backward pass, I gradient of the input, W gradients of the weights. */
export type Kind = (typeof KINDS)[number];

export const FORWARD = 0;
export const BACKWARD = 1;
export const INPUT_GRADIENT = 2;
export const WEIGHT_GRADIENT = 3;

/** An operation as a plan writes it, such as `5F2`. */
export function operationName(virtual: number, kind: number, microBatch: number): string {
  return `${virtual}${KINDS[kind]}${microBatch}`;
}

/** Parts of an operation's name; null where a text is none, such as one with a leading zero. */
export function readOperation(word: string): { virtual: number; kind: number; microBatch: number } | null {
  const match = /^(0|[1-9]\d{0,8})([FBIW])(0|[1-9]\d{0,8})$/.exec(word);
  return match === null
    ? null
    : {
        virtual: Number(match[1]),
        kind: 'FBIW'.indexOf(match[2]!),
        microBatch: Number(match[3])
      };
}
