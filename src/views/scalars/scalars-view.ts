import { scalarSeries } from '../../aggregate';
import { COLORS, formatFull, formatInteger, type IPlace, type IRecipe } from '../../charts';
import type { ScalarsOptions } from '../../protocol/views.generated';
import type { IPointed } from '../../store/run-link';
import type { IScalarColumns, SourceChange } from '../../store/source';
import { ViewModel } from '../shared/view-model';
import { smoothingControl, transformControl } from '../shared/controls';
import type { IContent, IMark, IMoved, Loaded } from '../shared/content';
import { scalarWords } from '../shared/change-words';
import { omissionWords } from '../shared/describe';
import { hold, moveOf } from '../shared/places';
import { rangeOf, type ILinkedMarks, type IStepAxis } from '../shared/links';
import { closest, linesOf, rowsOf, type ILine } from './scalar-lines';
import { scaleOf, wide } from '../shared/scale';
import { emptyState, type IState } from '../shared/states';
import type { Control } from '../shared/control';
import { selectControl } from '../shared/select-control';
import type { ITip } from '../shared/tip';

/** Most points that one line is drawn with. */
const MOST_POINTS = 2000;

const SMOOTHINGS = [0, 5, 20, 50, 100, 200] as const;

/** Named scalars over steps or time, one panel for each unit. */
export class ScalarsView extends ViewModel<ScalarsOptions> {
  get subject(): string {
    return this.options.names?.join(', ') || this.t('Scalars');
  }

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && change.stream === 'scalars';
  }

  async load(): Promise<Loaded> {
    const columns = await this.source.scalars(null);
    this._known = Object.keys(columns.units);
    const { names, x, smoothing } = this.options;
    const steps = this.env.within(this.options.steps);
    const series = scalarSeries(columns, { names, steps, x, smoothing, points: MOST_POINTS });
    this._lines = linesOf(series, smoothing > 1, x);
    if (this._lines.length === 0) {
      return { state: this._empty(columns) };
    }
    return { content: this._compose() };
  }

  override controls(): Control[] {
    const { options, t } = this;
    const chosen = options.names === null ? '' : options.names.join('\n');
    const loss = this._known.filter(name => name.includes('loss'));
    const choices = [
      { value: '', text: loss.length > 0 ? t('losses') : t('all') },
      ...this._known.map(name => ({ value: name, text: name })),
      { value: this._known.join('\n'), text: t('all') }
    ];
    if (!choices.some(choice => choice.value === chosen)) {
      choices.push({ value: chosen, text: options.names?.join(', ') ?? '' });
    }
    return [
      { kind: 'name', id: 'run', text: this.source.name },
      selectControl(
        'names',
        t('Scalars'),
        chosen,
        choices.filter((each, at) => choices.findIndex(other => other.value === each.value) === at),
        value => this.choose({ names: value === '' ? null : value.split('\n') })
      ),
      smoothingControl(SMOOTHINGS, options.smoothing, smoothing => this.choose({ smoothing }), t),
      selectControl('x', t('Over'), options.x, { step: t('steps'), time: t('time') }, x =>
        this.choose({ x })
      ),
      transformControl(t('Scale'), options.transform, transform => this.choose({ transform }), t)
    ];
  }

  override probe(place: IPlace): IMark | null {
    const at = this._nearest(place.x);
    if (at === null) {
      return null;
    }
    return this._mark(at, place.frame.facet['panel'] ?? 0);
  }

  override tipOf(mark: IMark): ITip | null {
    const x = mark.x[0];
    const panel = mark.facet?.[1];
    const lines = this._lines.flatMap((line, index) => {
      const at = closest(line.xs, x);
      if (line.panel !== panel || at === null || line.step[at] === undefined) {
        return [];
      }
      const raw = formatFull(line.raw[at] ?? NaN);
      const smoothed = line.smoothed
        ? this.t(
            ' (mean of %1: %2)',
            this.options.smoothing,
            formatFull(Number((line.value[at] ?? NaN).toPrecision(6)))
          )
        : '';
      return [{ name: line.name, value: raw + smoothed, color: this._color(index) }];
    });
    const step = this._stepAt(x);
    return lines.length === 0 ? null : { heading: this.t('step %1', formatInteger(step)), lines };
  }

  override move(key: string): IMoved | null {
    const by = moveOf(key);
    if (by === undefined || this._lines.length === 0) {
      return null;
    }
    const before = this._at;
    const place = hold((before?.line ?? 0) + (before ? by[1] : 0), this._lines.length);
    const line = this._lines[place];
    const old = this._lines[before?.line ?? 0];
    if (!line || !old) {
      return null;
    }
    const from = before ? (closest(line.xs, old.xs[before.at] ?? 0) ?? 0) : line.step.length - 1;
    const at = hold(from + (before ? by[0] : 0), line.step.length);
    this._at = { line: place, at };
    const mark = this._mark(line.xs[at] ?? 0, line.panel);
    const value = formatFull(line.raw[at] ?? NaN);
    const said = this.t('step %1, %2: %3 %4', formatInteger(line.step[at] ?? 0), line.name, value, line.unit);
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  override pointedBy(mark: IMark): IPointed {
    return { step: this._stepAt(mark.x[0]), layer: null };
  }

  override marksOf({ step }: IPointed): ILinkedMarks {
    const x = step === null ? null : this._placeOf(step);
    return { marks: x === null ? [] : [{ facet: null, x: [x, x], y: null }] };
  }

  override stepAxis(): IStepAxis {
    return {
      stepsIn: ([from, to]) =>
        rangeOf(
          this._lines
            .flatMap(({ xs, step }) => Array.from(step).filter((_, at) => within(xs[at], from, to)))
            .sort((a, b) => a - b)
        ),
      spanOf: ([first, last]) => [this._placeOf(first) ?? first, this._placeOf(last) ?? last]
    };
  }

  /** Return where a step, or the one nearest to it, lies on the x axis. */
  private _placeOf(step: number): number | null {
    if (this.options.x === 'step') {
      return step;
    }
    const places = this._lines.flatMap(line => {
      const at = closest(line.step, step);
      return at === null ? [] : [{ away: Math.abs((line.step[at] ?? 0) - step), x: line.xs[at] ?? 0 }];
    });
    return places.sort((a, b) => a.away - b.away)[0]?.x ?? null;
  }

  private _mark(x: number, panel: unknown): IMark {
    return { facet: ['panel', panel], x: [x, x], y: null };
  }

  private _compose(): IContent {
    const { t, options } = this;
    const lines = this._lines;
    const panels = [...new Set(lines.map(line => line.panel))];
    const rows = lines.flatMap(rowsOf);
    const xs = lines.flatMap(line => [line.xs[0] ?? 0, line.xs[line.step.length - 1] ?? 0]);
    const x = wide([Math.min(...xs), Math.max(...xs)]);
    const positive = lines.every(line => line.raw.every(value => !(value <= 0)));
    const scale = scaleOf(options.transform, positive ? 1 : 0);
    const nonFinite = lines.reduce((sum, line) => sum + line.nonFinite, 0);
    const absent = (options.names ?? []).filter(name => !this._known.includes(name));
    const caption = absent.length > 0 ? [t('This run has no scalar named %1.', absent.join(t(' or ')))] : [];
    if (options.smoothing > 1) {
      caption.push(
        t('Lines are the trailing mean of %1 points; the numbers themselves are faint.', options.smoothing)
      );
    }
    if (nonFinite > 0) {
      caption.push(
        t('Values that are not finite: %1; marks along the top show where.', formatInteger(nonFinite))
      );
    }
    if (scale === 'symlog') {
      caption.push(t('The axis is logarithmic on both sides of zero.'));
    }
    const steps = lines.flatMap(line => [line.step[0] ?? 0, line.step[line.step.length - 1] ?? 0]);
    const recipe: IRecipe = {
      template: 'scalars',
      texts: {
        xTitle: options.x === 'step' ? t('step') : this.env.isUtc ? t('time (UTC)') : t('time'),
        xLabel:
          options.x === 'step'
            ? "join(split(datum.label, ','), '\u2009')"
            : `${this.env.isUtc ? 'utcFormat' : 'timeFormat'}(datum.value, '%H:%M:%S')`,
        yScale: scale
      },
      params: {
        x0: x[0],
        x1: x[1],
        headers: Object.fromEntries(
          panels.map(panel => [panel, lines.find(line => line.panel === panel)?.unit || t('no unit')])
        )
      },
      datasets: { rows },
      height: panels.length === 1 ? 280 : panels.length === 2 ? 190 : 140
    };
    return {
      recipe,
      rows: panels.length,
      extent: { x, y: [0, 1] },
      title: t(
        '%1, steps %2 to %3',
        lines.map(line => line.name).join(', '),
        formatInteger(Math.min(...steps)),
        formatInteger(Math.max(...steps))
      ),
      caption: [
        ...caption,
        ...omissionWords(
          {
            decimatedFrom: Math.max(
              0,
              ...lines.filter(line => line.raw.length < line.of).map(line => line.of)
            )
          },
          t
        )
      ],
      summary: lines.map(line => scalarWords(line.name, line.step, line.value, line.unit, t)).join(' ')
    };
  }

  private _empty(columns: IScalarColumns): IState {
    const { t, options } = this;
    const { names } = options;
    if (columns.name.length === 0) {
      return emptyState(
        t('No scalar has arrived yet: the training loop reports them with the tracer.'),
        t('Check again'),
        () => this.actions.retry()
      );
    }
    const absent = names?.filter(name => !this._known.includes(name)) ?? [];
    return absent.length > 0
      ? emptyState(t('This run has no scalar named %1.', absent.join(t(' or '))), t('Show the losses'), () =>
          this.choose({ names: null, steps: null })
        )
      : emptyState(t('No scalar falls into these steps.'), t('Show all steps'), () =>
          this.choose({ steps: null })
        );
  }

  private _nearest(x: number): number | null {
    let best: number | null = null;
    for (const line of this._lines) {
      const at = closest(line.xs, x);
      const found = at === null ? undefined : line.xs[at];
      if (found !== undefined && (best === null || Math.abs(found - x) < Math.abs(best - x))) {
        best = found;
      }
    }
    return best;
  }

  private _stepAt(x: number): number {
    for (const line of this._lines) {
      const at = line.xs.indexOf(x);
      if (at >= 0) {
        return line.step[at] ?? 0;
      }
    }
    return Math.round(x);
  }

  private _color(index: number): string {
    const palette = COLORS.categorical[this.env.isDark ? 'dark' : 'light'];
    return palette[index % palette.length] ?? palette[0];
  }

  private _known: readonly string[] = [];
  private _lines: readonly ILine[] = [];
  private _at: { line: number; at: number } | null = null;
}

const within = (x: number | undefined, from: number, to: number): boolean =>
  x !== undefined && x >= from && x <= to;
