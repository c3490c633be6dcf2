// A user of k6. With RATE in the environment: so many requests a second, whatever the answers.
import http from 'k6/http';

const rate = Number(__ENV.RATE || 0);
const paced = { executor: 'constant-arrival-rate', rate, duration: '4s', preAllocatedVUs: 20 };

export const options = rate > 0 ? { scenarios: { paced } } : {};
export default () => { http.get(__ENV.URL); };
