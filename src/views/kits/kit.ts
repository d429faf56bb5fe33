import { own } from '../../protocol/records';
import type { IStreamRows } from '../../store/row-store';
import type { IRunSource } from '../../store/source';
import type { IContent, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { nothingYet, type IState } from '../shared/states';
import type { IViewEnvironment } from '../shared/view-model';
import { KeepingView } from './keeping-view';

/** A sentence, or how it follows from the options. */
export type Said<O extends object> = string | ((options: Readonly<Required<O>>) => string);

/** What is asked for when a picture is drawn. */
export interface IKitQuery<O extends object> {
  readonly source: IRunSource;
  readonly options: Readonly<Required<O>>;
  /** First and last step to read; null for all. */
  readonly steps: readonly [number, number] | null;
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

/** What every kit needs to make a view: its rows, what they are called, and what can be set. */
export interface IKit<O extends object, R> {
  /** Streams whose new rows are drawn. */
  readonly streams: readonly string[];
  /** What is looked at, in words, whether or not there is something of it: the title begins with it. */
  readonly subject: Said<O>;
  /** Why there is nothing to draw, where `read` finds nothing. */
  readonly empty: Said<O>;
  /** Read what is drawn; null where there is nothing. */
  read(asked: IKitQuery<O>): Promise<R | null> | R | null;
  /** Controls of the view's own options, which stand before those of the kit. */
  controls?(options: Readonly<Required<O>>, choose: (options: Partial<O>) => void): readonly Control[];
  /** Sentences below the picture: everything in it that is not literal. */
  caption?(rows: R, options: Readonly<Required<O>>): readonly string[];
  /** What is seen in it; the kit's own words where it is absent. */
  summary?(rows: R, options: Readonly<Required<O>>): string;
}

export const saidOf = <O extends object>(words: Said<O>, options: Readonly<Required<O>>): string =>
  typeof words === 'string' ? words : words(options);

/** A column of a stream's rows; undefined where it is not named, or not there. */
export const columnOf = ({ columns }: IStreamRows, name?: string): ArrayLike<unknown> | undefined =>
  name === undefined ? undefined : own(columns, name);

/** What a kit draws of rows; its summary stands where the view has none of its own. */
export type Drawn = Omit<IContent, 'caption' | 'title'> & Partial<Pick<IContent, 'caption' | 'title'>>;

/** A view of one picture that a kit makes of rows. */
export abstract class KitView<O extends object, R, K extends IKit<O, R>> extends KeepingView<
  O,
  { readonly rows: R | null }
> {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<O>,
    protected readonly kit: K
  ) {
    super(source, env);
  }

  protected get streams(): readonly string[] {
    return this.kit.streams;
  }

  get subject(): string {
    return saidOf(this.kit.subject, this.options);
  }

  override controls(): Control[] {
    return [...(this.kit.controls?.(this.options, options => this.choose(options)) ?? [])];
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { env, kit, options, source, t } = this;
    const steps = env.within(('steps' in options ? options.steps : null) as [number, number] | null);
    const { rows } = await this.once([options, steps], async () => {
      const read = await kit.read({ source, options, steps, signal });
      return { rows: read && this.within(read, steps) };
    });
    if (rows === null) {
      return { state: nothingYet(saidOf(kit.empty, options), this.actions, t) };
    }
    const drawn = this.draw(rows);
    if ('kind' in drawn) {
      return { state: drawn };
    }
    const caption = [...(kit.caption?.(rows, options) ?? []), ...(drawn.caption ?? [])];
    const summary = kit.summary?.(rows, options) ?? drawn.summary;
    return { content: { title: this.subject, ...drawn, caption, summary } };
  }

  /** Of more than can be drawn there is more to see of a part. */
  override zoomed(): void {
    this.env.refresh(false);
  }

  /** What of the rows lies in the steps that are looked at, null being all; null where nothing does. */
  protected within(rows: R, _steps: readonly [number, number] | null): R | null {
    return rows;
  }

  /** Draw rows, of which there are some, or say why that is not done. */
  protected abstract draw(rows: R): Drawn | IState;
}
