/** What an operation is: a forward pass, one that is done again for a backward pass, a whole backward pass, its gradient of the input, its gradients of the weights, the optimizer, new weights that come. */
export type OperationKind = 'B' | 'F' | 'I' | 'O' | 'R' | 'S' | 'W';

/** One operation as it is drawn, times in ms since the step began. */
export interface IOperation {
  readonly kind: OperationKind;
  readonly chunk: number;
  /** -1 where it is of none. */
  readonly microBatch: number;
  readonly begin: number;
  readonly end: number;
}

/** One line of a picture: what a stage does. Operations are in the order of time. */
export interface ILane {
  readonly name: string;
  readonly operations: readonly IOperation[];
}

/** Lanes that belong together. */
export interface ILaneGroup {
  /** What stands over them; empty where nothing does. */
  readonly heading: string;
  readonly lanes: readonly ILane[];
  /** When the step is over, ms. */
  readonly end: number;
  /** What the step's length hangs on: stretches on lanes, each followed by what waited for it. */
  readonly path?: readonly { readonly lane: number; readonly begin: number; readonly end: number }[];
}

/** An operation, or the sum of several that are shorter than a pixel, on the line that it is drawn on. */
export interface IGanttBar extends IOperation {
  /** Number of the row, over all groups. */
  readonly row: number;
  readonly group: number;
  readonly lane: number;
  /** How many operations it is. */
  readonly count: number;
}

/**
 * Put the operations of a lane together that are shorter than a pixel: a piece a pixel, of the kind that fills most of it.
 *
 * @param window - What is seen, ms. What lies outside is left out.
 * @param pixel - ms of a pixel.
 */
export function piecesOf(
  lane: ILane,
  place: Pick<IGanttBar, 'group' | 'lane' | 'row'>,
  [from, to]: readonly [number, number],
  pixel: number
): IGanttBar[] {
  const pieces: IGanttBar[] = [];
  let [column, gathered]: [number, IOperation[]] = [NaN, []];
  const flush = (): void => {
    const all = gathered;
    const [first, last] = [all[0], all.at(-1)];
    if (first && last) {
      pieces.push({
        ...(all.length === 1 ? first : { ...longest(all), begin: first.begin, end: last.end }),
        ...place,
        count: all.length
      });
    }
    [column, gathered] = [NaN, []];
  };
  for (const each of lane.operations) {
    if (each.end < from || each.begin > to) {
      continue;
    }
    if (each.end - each.begin >= pixel) {
      flush();
      pieces.push({ ...each, ...place, count: 1 });
      continue;
    }
    const at = Math.floor(each.begin / pixel);
    if (column !== at) {
      flush();
      column = at;
    }
    gathered.push(each);
  }
  flush();
  return pieces;
}

function longest(operations: readonly IOperation[]): IOperation {
  const taken = new Map<string, number>();
  for (const { kind, begin, end } of operations) {
    taken.set(kind, (taken.get(kind) ?? 0) + end - begin);
  }
  const [kind] = [...taken].reduce((most, each) => (each[1] > most[1] ? each : most));
  return operations.find(each => each.kind === kind) as IOperation;
}
