import { TensorStore, type SourceChange } from '..';
import { ChangeGate } from '../live-past';
import { rowOf } from './memory-run';

/** An hour at 2 steps a second. */
const HOUR = 7_200;
const LAYERS = 2;
const VALUES = 24;
/** A hundredth of what comes. */
const LIMIT = 1 << 17;

describe('a browser tab that sleeps for an hour', () => {
  let visibility: jest.SpyInstance;
  let frames: FrameRequestCallback[];

  beforeEach(() => {
    frames = [];
    // A browser holds timers back while a tab is hidden: none runs before it is told to.
    jest.useFakeTimers();
    jest.spyOn(window, 'requestAnimationFrame').mockImplementation(callback => frames.push(callback));
    visibility = jest.spyOn(document, 'visibilityState', 'get').mockReturnValue('visible');
  });

  afterEach(() => {
    jest.restoreAllMocks();
    jest.useRealTimers();
  });

  it('keeps bounded memory, says what it gave up, and wakes to one change with the newest step', async () => {
    const store = new TensorStore(LIMIT);
    const changes: SourceChange[] = [];
    const gate = new ChangeGate(change => changes.push(change));
    for (let step = 1; step <= HOUR; step++) {
      for (let layer = 1; layer <= LAYERS; layer++) {
        const shape = [1, 1, VALUES];
        const values = new Float32Array(VALUES).fill(step);
        store.add(
          rowOf({ step, layer, compressor: `Tile(tiles=${VALUES})`, sourceShape: shape, shape, values })
        );
      }
      gate.note('tensors', step, step);
    }
    expect(changes).toEqual([]);
    expect(store.bytes).toBeLessThanOrEqual(LIMIT);
    jest.runOnlyPendingTimers();
    // A frame has the browser go through the whole page: nobody asks for one before there is something to draw.
    expect(frames).toEqual([]);
    expect(changes).toEqual([{ kind: 'rows', stream: 'tensors', firstStep: 1, lastStep: HOUR }]);
    const result = store.query({ flag: 'MLP1_mat_mul', reduced: true });
    expect(result.rows[result.rows.length - 1]?.step).toBe(HOUR);
    expect(result.rows.length + result.evictedRows).toBe(LAYERS * HOUR);
    gate.dispose();
  });

  it('gathers changes at most every 50 ms when it was hidden from the start', () => {
    visibility.mockReturnValue('hidden');
    const changes: SourceChange[] = [];
    const gate = new ChangeGate(change => changes.push(change));
    for (let step = 1; step <= 200; step++) {
      gate.note('tensors', step, step);
      jest.advanceTimersByTime(5);
    }
    expect(frames).toEqual([]);
    expect(changes.length).toBeGreaterThan(15);
    expect(changes.length).toBeLessThanOrEqual(20);
    gate.dispose();
  });
});
