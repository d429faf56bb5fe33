import type { IReportPart } from '../../report/report-part';
import type { IRunSource } from '../../store/source';
import { readGenerations } from './store/generations';

/** What a report shows of the texts that a run wrote. */
export async function lookForReport(run: IRunSource): Promise<IReportPart> {
  const written = await readGenerations(run).catch(() => []);
  return {
    has: {
      tokens: written.length > 0,
      lens: written.some(({ request }) => (request?.lens ?? 0) > 0),
      effects: written.some(({ control }) => control > 0)
    }
  };
}
