import { boundedText } from '../protocol/texts';
import { asArray, asObject } from './rest';

/** What stands out in a run: a value that is not finite, few steps, or far from the median run. */
const REASONS = ['not-finite', 'short', 'far', 'usual'] as const;

export interface IRunCourse {
  readonly id: string;
  readonly final: number | null;
  readonly distance: number | null;
  readonly why: (typeof REASONS)[number];
  /** The first step whose value is not finite. */
  readonly badAt: number | null;
  /** Least and greatest values, from the first to the last of the steps of all. */
  readonly low: readonly (number | null)[];
  readonly high: readonly (number | null)[];
}

/** One scalar of many runs, as protocol/README.md says. */
export interface ICourses {
  readonly name: string;
  readonly names: readonly string[];
  readonly steps: readonly number[];
  /** 5, 25, 50, 75 and 95 % of the runs at each step. */
  readonly quantiles: readonly (readonly (number | null)[])[];
  readonly counts: readonly number[];
  /** Outliers first. */
  readonly runs: readonly IRunCourse[];
  /** The same quantiles of each group that was asked for. */
  readonly groups: readonly ICoursesGroup[];
}

export interface ICoursesGroup {
  readonly name: string;
  /** How many runs it has. */
  readonly runs: number;
  readonly quantiles: readonly (readonly (number | null)[])[];
}

const MOST_LETTERS = 500;

const figure = (value: unknown): number | null => (typeof value === 'number' ? value : null);
const figures = (value: unknown): (number | null)[] => asArray(value).map(figure);
const whole = (value: unknown): number[] => asArray(value).map(each => Number(each));

/** Read the answer of the server. */
export function coursesOf(value: unknown): ICourses {
  const { name, names, steps, quantiles, counts, runs, groups } = asObject(value);
  return {
    name: boundedText(name, MOST_LETTERS),
    names: asArray(names).map(each => boundedText(each, MOST_LETTERS)),
    steps: whole(steps),
    quantiles: asArray(quantiles).map(figures),
    counts: whole(counts),
    runs: asArray(runs).map(each => {
      const run = asObject(each);
      return {
        id: boundedText(run['id'], MOST_LETTERS),
        final: figure(run['final']),
        distance: figure(run['distance']),
        why: REASONS.find(reason => reason === run['why']) ?? 'usual',
        badAt: figure(run['bad_at']),
        low: figures(run['low']),
        high: figures(run['high'])
      };
    }),
    groups: asArray(groups).map(each => {
      const group = asObject(each);
      return {
        name: boundedText(group['name'], MOST_LETTERS),
        runs: Number(group['runs']),
        quantiles: asArray(group['quantiles']).map(figures)
      };
    })
  };
}
