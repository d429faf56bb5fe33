/** @jest-environment ./jest.environment.node.js */
import type { IScalarColumns } from '../../store/source';
import { AggregateError, chosenNames, decimate, scalarLines, trailingMean } from '..';

function columns(series: Record<string, number[]>): IScalarColumns {
  const rows = Object.entries(series).flatMap(([name, values]) =>
    values.map((value, index) => ({ name, value, step: index + 1, time: 1000 + index / 10 }))
  );
  return {
    step: Float64Array.from(rows, row => row.step),
    time: Float64Array.from(rows, row => row.time),
    value: Float64Array.from(rows, row => row.value),
    name: rows.map(row => row.name),
    units: Object.fromEntries(Object.keys(series).map(name => [name, name === 'loss' ? 'nats/byte' : '']))
  };
}

describe('trailingMean', () => {
  it.each<[string, number[], number, number[]]>([
    ['leaves points as they are without smoothing', [1, 2, 9], 0, [1, 2, 9]],
    ['is over as many points as there are at the start', [2, 4, 6, 8], 3, [2, 3, 4, 6]],
    [
      'keeps non-finite points and leaves them out of means',
      [1, NaN, 3, Infinity, 5],
      3,
      [1, NaN, 2, Infinity, 4]
    ],
    ['takes one point as itself', [7], 5, [7]]
  ])('%s', (_, values, points, expected) => {
    expect(Array.from(trailingMean(Float64Array.from(values), points))).toEqual(expected);
  });

  it('agrees with the plain mean of every window', () => {
    const values = Float64Array.from({ length: 500 }, (_, index) =>
      index % 11 === 3 ? NaN : Math.sin(index) * 1e6
    );
    for (const points of [2, 7, 64, 499, 1000]) {
      const means = trailingMean(values, points);
      values.forEach((value, index) => {
        const window = values.slice(Math.max(0, index - points + 1), index + 1).filter(Number.isFinite);
        const plain = window.reduce((sum, item) => sum + item, 0) / window.length;
        expect(Number.isFinite(value) ? Math.abs((means[index] ?? NaN) - plain) : 0).toBeLessThan(1e-6);
      });
    }
  });

  it('does not carry the rounding of a spike along', () => {
    const values = new Float64Array(1000).fill(1);
    values[10] = 1e300;
    expect(Array.from(trailingMean(values, 4).slice(20))).toEqual(Array(980).fill(1));
  });

  it('refuses a window that is no whole number', () => {
    expect(() => trailingMean(new Float64Array(1), 1.5)).toThrow(AggregateError);
  });
});

describe('decimate', () => {
  const x = Float64Array.from({ length: 100_000 }, (_, index) => index);
  const y = x.map(index => Math.sin(index / 50) + (index === 54_321 ? 100 : 0) - (index === 7 ? 100 : 0));

  it('leaves few points as they are', () => {
    expect(decimate(x.slice(0, 5), y.slice(0, 5), 10)).toEqual({
      kept: Uint32Array.of(0, 1, 2, 3, 4),
      of: 5
    });
  });

  it('keeps the ends, the spikes and every non-finite run, and says how many points there were', () => {
    const broken = y.slice();
    broken[2000] = NaN;
    broken[2001] = NaN;
    broken[70_000] = -Infinity;
    const { kept, of } = decimate(x, broken, 1000);
    expect(of).toBe(100_000);
    expect(kept.length).toBeLessThan(1300);
    expect(Array.from(kept)).toEqual(expect.arrayContaining([0, 7, 2000, 54_321, 70_000, 99_999]));
    expect(Array.from(kept)).toEqual([...new Set(kept)].sort((a, b) => a - b));
  });

  it('keeps the least and the greatest value of every span', () => {
    const { kept } = decimate(x, y, 400);
    const width = 99_999 / 100;
    // Least and greatest value of each span, of the given points.
    const ends = (points: Iterable<number>): [number[], number[]] => {
      const [least, most] = [Array(100).fill(Infinity), Array(100).fill(-Infinity)];
      for (const index of points) {
        const span = Math.min(99, Math.floor(index / width));
        least[span] = Math.min(least[span], y[index] ?? NaN);
        most[span] = Math.max(most[span], y[index] ?? NaN);
      }
      return [least, most];
    };
    expect(ends(kept)).toEqual(ends(y.keys()));
  });

  it('copes with points that all lie in one place', () => {
    const { kept } = decimate(
      new Float64Array(100),
      Float64Array.from({ length: 100 }, (_, index) => index),
      8
    );
    expect(Array.from(kept)).toEqual([0, 99]);
  });
});

describe('scalars as lines', () => {
  it('takes losses when no names are given, else all', () => {
    expect(chosenNames(['lr', 'loss', 'held_out_loss', 'loss'])).toEqual(['loss', 'held_out_loss']);
    expect(chosenNames(['lr', 'grad_norm'])).toEqual(['lr', 'grad_norm']);
    expect(chosenNames(['lr', 'loss'], ['lr', 'nothing'])).toEqual(['lr']);
  });

  it('cuts a range of steps', () => {
    const lines = scalarLines(columns({ loss: [8, 6, 4, 2], lr: [1, 1, 1, 1] }), {
      names: ['loss'],
      steps: [2, 4]
    });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({ name: 'loss', unit: 'nats/byte', total: 3, starts: [] });
    expect(Array.from(lines[0]?.steps ?? [])).toEqual([2, 3, 4]);
    expect(Array.from(lines[0]?.values ?? [])).toEqual([6, 4, 2]);
    expect(lines[0]?.times[0]).toBeCloseTo(1000.1);
  });

  it('thins long lines out, keeps what is not finite and counts what it left', () => {
    const long = Array.from({ length: 20_000 }, (_, index) => (index === 12_345 ? NaN : index % 100));
    const [lr, loss] = scalarLines(columns({ loss: long, lr: [NaN] }), {
      names: ['lr', 'loss'],
      points: 500
    });
    expect(loss).toMatchObject({ name: 'loss', total: 20_000 });
    expect(loss?.steps.length).toBeLessThan(700);
    expect(Array.from(loss?.values ?? [])).toContainEqual(NaN);
    expect(Array.from(lr?.values ?? [])).toEqual([NaN]);
  });

  it('answers nothing for no scalars', () => {
    expect(scalarLines(columns({}), {})).toEqual([]);
  });
});
