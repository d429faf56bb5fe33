import { UseSignal } from '@jupyterlab/ui-components';
import type { ISignal } from '@lumino/signaling';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatInteger, formatNumber } from '../../charts/format';
import type { ICourses, IRunCourse } from '../../client/courses';
import { extentOf } from '../../views/shared/scale';

export type Values = readonly (number | null)[];
export type Scale = 'linear' | 'log';

/** The part of a picture without text, which is stretched to its place. */
const [WIDTH, HEIGHT] = [1000, 300];
const MOST_NAMED = 12;

/** Between low and high, as an SVG path: a closed area for each stretch that has values. */
export function areaPath(
  low: Values,
  high: Values,
  place: (at: number, value: number) => [number, number]
): string {
  const paths: string[] = [];
  let [up, down]: [string[], string[]] = [[], []];
  const end = (): void => {
    if (up.length > 0) {
      paths.push(`M${up.join('L')}L${down.reverse().join('L')}Z`);
    }
    [up, down] = [[], []];
  };
  low.forEach((from, at) => {
    const to = high[at] ?? null;
    if (from === null || to === null) {
      end();
      return;
    }
    const [[x, top], [, bottom]] = [place(at, to), place(at, from)];
    up.push(`${x.toFixed(1)} ${top.toFixed(1)}`);
    down.push(`${x.toFixed(1)} ${bottom.toFixed(1)}`);
  });
  end();
  return paths.join('');
}

const known = (values: Values): number[] => values.filter(each => each !== null);

/** The values that a picture shows: those of the band, and of outliers as far again at either side. */
export function rangeOf(band: readonly Values[], others: readonly Values[]): [number, number] {
  const outer = extentOf(others.map(known));
  const found = extentOf(band.map(known)) ?? outer;
  if (found === null) {
    return [0, 1];
  }
  const [low, high] = found;
  const span = high - low || Math.abs(high) || 1;
  const [least, most] = outer ?? found;
  return [Math.max(low - span, Math.min(low, least)), Math.min(high + span, Math.max(high, most))];
}

export const scaled = (values: Values, scale: Scale): Values =>
  scale === 'linear' ? values : values.map(each => (each === null || each <= 0 ? null : Math.log10(each)));

/** A run's course in a cell of the table. */
export function CourseLine({ course }: { course: IRunCourse }): React.ReactElement {
  const [low, high] = rangeOf([course.low, course.high], []);
  const last = Math.max(1, course.low.length - 1);
  const path = areaPath(course.low, course.high, (at, value) => [
    (at / last) * 100,
    19 - (18 * (value - low)) / (high - low || 1)
  ]);
  return (
    <svg className={`jp-MegalensCourseLine jp-mod-${course.why}`} viewBox="0 0 100 20" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}

/** What stands out in a run, in words; empty where nothing does. */
export function reasonText(course: IRunCourse, trans: TranslationBundle): string {
  switch (course.why) {
    case 'not-finite':
      return trans.__('not finite from step %1', formatInteger(course.badAt ?? 0));
    case 'short':
      return trans.__('ends early');
    case 'far':
      return trans.__('far from the others');
    case 'usual':
      return '';
  }
}

/** Quantiles over many runs by step, with the lines of outliers over them, which are named beside. */
export function CoursesPicture(props: {
  courses: ICourses;
  scale: Scale;
  nameOf: (id: string) => string;
  pointed: ISignal<unknown, string | null>;
  point: (id: string | null) => void;
  open: (id: string) => void;
  trans: TranslationBundle;
}): React.ReactElement {
  const { courses, scale, nameOf, trans } = props;
  const outliers = courses.runs.filter(({ why }) => why !== 'usual').slice(0, MOST_NAMED);
  const bands = courses.quantiles.map(each => scaled(each, scale));
  const lines = outliers.flatMap(({ low, high }) => [scaled(low, scale), scaled(high, scale)]);
  const [low, high] = rangeOf(bands, lines);
  const y = (value: number): number => HEIGHT * (1 - (value - low) / (high - low || 1));
  const pathOf = (under: Values, over: Values): string => {
    const last = Math.max(1, under.length - 1);
    return areaPath(scaled(under, scale), scaled(over, scale), (at, value) => [
      (at / last) * WIDTH,
      y(value)
    ]);
  };
  const text = (value: number): string => formatNumber(scale === 'log' ? 10 ** value : value, 3);
  const band = (from: number, to: number): string =>
    pathOf(courses.quantiles[from] ?? [], courses.quantiles[to] ?? []);
  const beyond = outliers.filter(run =>
    [...known(scaled(run.low, scale)), ...known(scaled(run.high, scale))].some(
      each => each < low || each > high
    )
  ).length;
  const [fewest, most] = [Math.min(...courses.counts), Math.max(...courses.counts)];
  const all = courses.runs.length;
  const words = [
    trans._n('%1 run', '%1 runs', all),
    fewest === most
      ? trans.__('all of them at every step')
      : trans.__('%1 to %2 of them at a step', formatInteger(fewest), formatInteger(most)),
    trans.__('bands: 25 to 75 % and 5 to 95 % of the runs; line: the median'),
    ...(beyond > 0
      ? [trans._n('%1 outlier reaches beyond the picture', '%1 outliers reach beyond the picture', beyond)]
      : [])
  ].join(' · ');
  return (
    <figure className="jp-MegalensCourses">
      <div className="jp-MegalensCourses-values" aria-hidden="true">
        <span>{text(high)}</span>
        <span>{text((high + low) / 2)}</span>
        <span>{text(low)}</span>
      </div>
      <UseSignal signal={props.pointed} initialArgs={null}>
        {(_, pointed) => {
          const run = courses.runs.find(({ id }) => id === pointed);
          return (
            <svg
              viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
              preserveAspectRatio="none"
              role="img"
              aria-label={trans.__('%1 of %2 runs by step', courses.name, formatInteger(all))}
            >
              <path className="jp-mod-outer" d={band(0, 4)} />
              <path className="jp-mod-inner" d={band(1, 3)} />
              {outliers.map(each => (
                <path key={each.id} className={`jp-mod-${each.why}`} d={pathOf(each.low, each.high)} />
              ))}
              <path className="jp-mod-median" d={band(2, 2)} />
              {run !== undefined && <path className="jp-mod-pointed" d={pathOf(run.low, run.high)} />}
            </svg>
          );
        }}
      </UseSignal>
      <ul aria-label={trans.__('Outliers')}>
        {outliers.map(run => (
          <li key={run.id} className={`jp-mod-${run.why}`}>
            <button
              type="button"
              className="jp-MegalensLink"
              title={nameOf(run.id)}
              onClick={() => props.open(run.id)}
              onMouseEnter={() => props.point(run.id)}
              onMouseLeave={() => props.point(null)}
              onFocus={() => props.point(run.id)}
              onBlur={() => props.point(null)}
            >
              {nameOf(run.id)}
            </button>{' '}
            {reasonText(run, trans)}
          </li>
        ))}
        {outliers.length === 0 && <li>{trans.__('No run stands out.')}</li>}
      </ul>
      <div className="jp-MegalensCourses-steps" aria-hidden="true">
        <span>{formatInteger(courses.steps[0] ?? 0)}</span>
        <span>{trans.__('step')}</span>
        <span>{formatInteger(courses.steps.at(-1) ?? 0)}</span>
      </div>
      <figcaption>{words}</figcaption>
    </figure>
  );
}
