import type { IInstrumentSlice } from '../../slice';

/** Rules that watch a training, and the alarms that they give. */
export const slice: IInstrumentSlice = {
  name: 'monitor',
  views: { health: () => import('./views/health-view') },
  events: [
    {
      stream: 'alarms',
      load: async () => {
        const { alarmEvents, alarmsOf } = await import('./store/alarms');
        return rows => alarmEvents(alarmsOf(rows));
      }
    }
  ],
  panel: async () => (await import('./panel/alarm-part')).openAlarmPart,
  sentences: async () => (await import('./views/alarm-sentences')).ALARM_SENTENCES,
  tiles: async () => (await import('./tiles')).TILES,
  report: async () => (await import('./store/alarms')).lookForReport
};
