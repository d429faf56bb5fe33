import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource } from '../store/source';

/** What an instrument knows of a run, for a report whose views nobody chose. */
export interface IReportPart {
  /** Of its streams, whether the run has something to show; of those that are not named it is believed. */
  readonly has: Readonly<Record<string, boolean>>;
  /** Views that are added to those that the table of views names. */
  readonly views?: readonly ViewOptions[];
}

/** Looks into a run. What cannot be read is not there. */
export type LookForReport = (run: IRunSource) => Promise<IReportPart>;

const parts: (() => Promise<LookForReport>)[] = [];

export function addReportPart(load: () => Promise<LookForReport>): void {
  parts.push(load);
}

export async function reportParts(run: IRunSource): Promise<readonly IReportPart[]> {
  const found: IReportPart[] = [];
  for (const load of parts) {
    found.push(await (await load())(run));
  }
  return found;
}
